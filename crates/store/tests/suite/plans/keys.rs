//! Look-ups by primary key: no other index may serve them, because it would lead through more rows.

use sqlx::{AssertSqlSafe, PgConnection, Row as _};

/// Indexes that may serve a look-up too: the first ones lead through the rows of one session or job at most, and the others through rows of which quotas
/// and people allow a tenant few.
const HARMLESS: [&str; 6] = [
    "message_seq on message",
    "session_input_dedupe_unique on session_input",
    "job_input_dedupe_unique on job_input",
    "forge_installation_one_owner on forge_installation",
    "project_name_unique on project",
    "approval_once on approval",
];

/// A table whose primary key begins with the tenant.
#[derive(Debug)]
pub(super) struct Table {
    name: String,
    key: String,
    /// The columns of its primary key, each with a value.
    condition: String,
}

/// Lists the tables of tenants.
pub(super) async fn tables(connection: &mut PgConnection) -> Vec<Table> {
    let rows = sqlx::query(
        "select t.relname as name, k.relname as key,
                string_agg(format('%I = %L::%s', a.attname,
                                  case when a.atttypid = 'uuid'::regtype then '01234567-89ab-cdef-0123-456789abcdef' else '1' end,
                                  format_type(a.atttypid, a.atttypmod)), ' and ' order by a.attnum) as condition
           from pg_index i join pg_class t on t.oid = i.indrelid join pg_class k on k.oid = i.indexrelid
           join pg_attribute a on a.attrelid = t.oid and a.attnum = any(i.indkey)
          where i.indisprimary and t.relnamespace = 'public'::regnamespace
            and (select attname from pg_attribute where attrelid = t.oid and attnum = i.indkey[0]) = 'tenant_id'
          group by 1, 2 order by 1",
    );
    let rows = rows.fetch_all(connection).await.unwrap();
    rows.iter()
        .map(|row| Table { name: row.get("name"), key: row.get("key"), condition: row.get("condition") })
        .collect()
}

/// Lists the plans of look-ups that another index serves. Reading a whole table is left out: for one page the planner prefers that.
pub(super) async fn wrong_plans(connection: &mut PgConnection, tables: &[Table]) -> Vec<String> {
    let mut wrong = vec![];
    for Table { name, key, condition } in tables {
        let explain = format!(
            "set enable_seqscan = off; set enable_bitmapscan = off; explain (costs off) select * from {name} where {condition}"
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *connection).await.unwrap();
        let plan = rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n");
        let is_allowed = HARMLESS.iter().any(|index| plan.contains(&format!("using {index}")));
        if !is_allowed && !plan.contains(&format!("using {key} on {name}")) {
            wrong.push(plan);
        }
    }
    wrong
}
