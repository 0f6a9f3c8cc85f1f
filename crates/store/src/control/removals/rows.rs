//! Removes the rows of deleted sessions in batches. The deletion of a session makes its rows unreachable at once and orders their removal in
//! `row_removal`; a trigger of migration 35 writes the order. A session may have hundreds of thousands of rows.

use crate::{
    Store, Tx,
    column::{signed, unsigned},
    error::Error,
};
use domain::ids::TenantId;
use sqlx::{AssertSqlSafe, Row as _};

/// Rows of one transaction: some 100 ms of work for Postgres.
const ROWS_MAX: u64 = 2_000;
/// Bytes of one transaction, as Postgres stores them: a large value has a row of Postgres' own for each 2 kB. The last row may be larger.
const BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What a transaction has removed.
#[derive(Default)]
struct Batch {
    rows: u64,
    bytes: u64,
}

impl Store {
    /// Lists at most `limit` tenants with deleted sessions whose rows are still there, in random order. Continues in
    /// [`Store::remove_rows`].
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_row_removals(&self, limit: i64) -> Result<Vec<TenantId>, Error> {
        // From one tenant to the next in the index: the cost does not grow with the number of sessions.
        let tenants = sqlx::query_scalar(
            "with recursive found as (
               (select tenant_id from row_removal order by tenant_id limit 1)
               union all
               select next.* from found cross join lateral (
                 select tenant_id from row_removal where tenant_id > found.tenant_id order by tenant_id limit 1) next)
             select tenant_id from found order by random() limit $1",
        );
        Ok(tenants.bind(limit).fetch_all(&self.system).await?.into_iter().map(TenantId).collect())
    }

    /// Says whether rows of deleted sessions of a tenant are still there.
    ///
    /// # Errors
    /// `Db`.
    pub async fn has_row_removals(&self, tenant: TenantId) -> Result<bool, Error> {
        let query =
            sqlx::query("select exists (select 1 from row_removal where tenant_id = $1)").bind(tenant.0);
        Ok(self.statements(tenant).await?.fetch_one(query).await?.try_get(0)?)
    }

    /// Removes the next batch of rows of a deleted session of the tenant, and forgets the order when none is left. Returns the number of
    /// rows. `None`: the tenant has no such session, or other workers are busy with all of them.
    ///
    /// # Errors
    /// `Unreadable`. `Db`: removed or not; the next call continues.
    pub async fn remove_rows(&self, tenant: TenantId) -> Result<Option<u64>, Error> {
        let mut tx = self.begin(tenant).await?;
        let order = sqlx::query_scalar::<_, String>(
            "select session_id from row_removal where tenant_id = $1 order by session_id limit 1 for update skip locked",
        );
        let Some(session) = order.bind(tenant.0).fetch_optional(&mut *tx).await? else { return Ok(None) };
        let mut batch = Batch::default();
        for statement in removals() {
            remove(&mut tx, tenant, &session, statement, &mut batch).await?;
            if batch.is_full() {
                break;
            }
        }
        if !batch.is_full() {
            sqlx::query("delete from row_removal where tenant_id = $1 and session_id = $2")
                .bind(tenant.0)
                .bind(&session)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(Some(batch.rows))
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.bytes >= BYTES_MAX
    }
}

/// The statements for the tables without a foreign key to the session. Parts come before their messages, whose deletion would delete them too.
fn removals() -> [String; 7] {
    [
        removal("part_chunk", "part_id, epoch, offset_bytes", "pg_column_size(text)"),
        removal("part", "message_id, id", "pg_column_size(data)"),
        removal("message", "id", "pg_column_size(info)"),
        removal("tool_exec", "exec_id", "0"),
        removal("request", "id", "pg_column_size(asked) + coalesce(pg_column_size(answer), 0)"),
        removal("session_input", "seq", "coalesce(pg_column_size(body), 0)"),
        removal("session_event", "seq", "pg_column_size(properties)"),
    ]
}

/// The statement that removes rows of `table` until the batch is full or none is left. `key` is the rest of its primary key after the tenant
/// and the session: in this order an index finds the rows. `bytes` counts its large columns, and Postgres knows them without reading the values.
fn removal(table: &str, key: &str, bytes: &str) -> String {
    format!(
        "with candidate as materialized (
           select ctid as place, {bytes} as bytes, {key} from {table} where tenant_id = $1 and session_id = $2 order by {key} limit $3),
         chosen as materialized (
           select place, bytes from (select place, bytes, sum(bytes) over (order by {key}) - bytes as bytes_before from candidate) measured
            where bytes_before < $4),
         removed as (delete from {table} where ctid = any (array(select place from chosen)))
         select count(*) as rows, coalesce(sum(bytes), 0)::bigint as bytes from chosen"
    )
}

/// Removes rows of one table. The last row may exceed the bytes of the batch.
async fn remove(
    tx: &mut Tx,
    tenant: TenantId,
    session: &str,
    statement: String,
    batch: &mut Batch,
) -> Result<(), Error> {
    // The transaction holds the order, so no other worker removes these rows; and a deleted session gets no new ones.
    let row = sqlx::query(AssertSqlSafe(statement))
        .bind(tenant.0)
        .bind(session)
        .bind(signed(ROWS_MAX.saturating_sub(batch.rows)))
        .bind(signed(BYTES_MAX.saturating_sub(batch.bytes)))
        .fetch_one(&mut **tx)
        .await?;
    batch.rows += unsigned(row.try_get("rows")?);
    batch.bytes += unsigned(row.try_get("bytes")?);
    Ok(())
}
