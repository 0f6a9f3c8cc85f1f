//! Streamed text, insert-only. It preserves the text of an answer across a crash, and serves late readers of an open
//! answer. The write that ends the turn deletes it.
// Continues in session::park.

use crate::{
    Store,
    column::{parse_id, signed, unsigned},
    error::Error,
    rows::control_row::EXISTS,
};
use domain::ids::{PartId, SessionId, TenantId};
use sqlx::{AssertSqlSafe, Row as _};

/// A piece of the text of an open part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub part_id: PartId,
    /// Its offset in the part's UTF-8 text.
    pub offset_bytes: u64,
    /// The text, without NUL.
    pub text: String,
}

impl Store {
    /// Stores a chunk without waiting for the disk. Only a crash of the machine loses it, and the final part repairs that.
    ///
    /// # Errors
    /// `Fenced` if another worker owns the session; `Db`.
    pub async fn append_chunk(
        &self,
        tenant: TenantId,
        session: &SessionId,
        epoch: u64,
        chunk: &Chunk,
    ) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        sqlx::query("set local synchronous_commit = off").execute(&mut *tx).await?;
        // `for share` orders this insert against a takeover, which updates the row.
        let stored = sqlx::query(
            "with fence as (select 1 from session_run where tenant_id = $1 and session_id = $2 and epoch = $3 for share)
             insert into part_chunk (tenant_id, session_id, part_id, epoch, offset_bytes, text)
             select $1, $2, $4, $3, $5, $6 from fence on conflict do nothing",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(epoch))
        .bind(chunk.part_id.as_str())
        .bind(signed(chunk.offset_bytes))
        .bind(&chunk.text)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        if stored.rows_affected() == 0 {
            let query = sqlx::query(
                "select 1 from session_run where tenant_id = $1 and session_id = $2 and epoch = $3",
            )
            .bind(tenant.0)
            .bind(session.as_str())
            .bind(signed(epoch));
            let row = self.statements(tenant).await?.fetch_optional(query).await?;
            return row.map(|_| ()).ok_or(Error::Fenced);
        }
        Ok(())
    }

    /// Returns the text of the open parts of a session, as stored under `epoch`, part by part in order.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_chunks(
        &self,
        tenant: TenantId,
        session: &SessionId,
        epoch: u64,
    ) -> Result<Vec<Chunk>, Error> {
        let query = sqlx::query(AssertSqlSafe(format!(
            "select part_id, offset_bytes, text from part_chunk
              where tenant_id = $1 and session_id = $2 and epoch = $3 and {EXISTS} order by part_id, offset_bytes"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(epoch));
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter()
            .map(|row| {
                let part_id: String = row.try_get("part_id")?;
                Ok(Chunk {
                    part_id: parse_id("chunk", &part_id)?,
                    offset_bytes: unsigned(row.try_get("offset_bytes")?),
                    text: row.try_get("text")?,
                })
            })
            .collect()
    }
}
