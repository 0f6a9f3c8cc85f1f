//! The plans of look-ups by primary key: no other index may serve them, because it would lead through all rows of a tenant.

use crate::world::World;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use testkit::database::connect;

/// Indexes that may serve a look-up too: the first two lead through the rows of one session at most, and the others through rows of which quotas and
/// people allow a tenant few.
const HARMLESS: [&str; 4] = [
    "message_seq on message",
    "session_input_dedupe_unique on session_input",
    "project_name_unique on project",
    "approval_once on approval",
];
/// Sessions of a large tenant.
const SESSIONS: i64 = 100_000;

/// A table whose primary key begins with the tenant.
#[derive(Debug)]
struct Table {
    name: String,
    key: String,
    /// The columns of its primary key, each with a value.
    condition: String,
}

async fn tables(connection: &mut PgConnection) -> Vec<Table> {
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

/// The look-ups that another index serves, with their plans. Reading a whole table is left out: for one page the planner prefers that.
async fn wrong_plans(connection: &mut PgConnection, tables: &[Table]) -> Vec<String> {
    let mut wrong = vec![];
    sqlx::raw_sql("set enable_seqscan = off; set enable_bitmapscan = off")
        .execute(&mut *connection)
        .await
        .unwrap();
    for Table { name, key, condition } in tables {
        let explain = format!("explain (costs off) select * from {name} where {condition}");
        let lines: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut *connection).await.unwrap();
        let plan = lines.join("\n");
        let is_allowed = HARMLESS.iter().any(|index| plan.contains(&format!("using {index}")));
        if !is_allowed && !plan.contains(&format!("using {key} on {name}")) {
            wrong.push(plan);
        }
    }
    wrong
}

async fn grow(connection: &mut PgConnection) {
    let copies = |table: &str, id: &str| {
        format!(
            "insert into {table} select copy.* from (select to_jsonb(t) as original from {table} t limit 1) one,
                    generate_series(1, {SESSIONS}) n,
                    jsonb_populate_record(null::{table}, original || jsonb_build_object('{id}', 'ses_' || n)) copy"
        )
    };
    let sql = [
        // Foreign keys are not checked meanwhile.
        "set session_replication_role = replica".to_owned(),
        copies("session", "id"),
        copies("session_run", "session_id"),
        copies("session_event", "session_id"),
    ];
    sqlx::raw_sql(AssertSqlSafe(sql.join(";"))).execute(connection).await.unwrap();
}

#[tokio::test]
async fn a_look_up_by_id_takes_the_primary_key_whatever_the_size_of_the_tenant() {
    let database = testkit::database().await;
    let mut empty = connect(&database.migrator_url).await;
    let tables = tables(&mut empty).await;
    assert!(tables.len() > 20, "{tables:?}");
    assert_eq!(wrong_plans(&mut empty, &tables).await, Vec::<String>::new(), "on a fresh database");
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "prompt").await;
    let mut connection = connect(&world.database.migrator_url).await;
    assert_eq!(wrong_plans(&mut connection, &tables).await, Vec::<String>::new(), "of a small tenant");
    grow(&mut connection).await;
    assert_eq!(wrong_plans(&mut connection, &tables).await, Vec::<String>::new(), "of a tenant that grew");
    sqlx::raw_sql("analyze").execute(&mut connection).await.unwrap();
    assert_eq!(wrong_plans(&mut connection, &tables).await, Vec::<String>::new(), "after an analysis");
    // The list still has its index.
    let list = "explain (costs off) select id from session s where tenant_id = '01234567-89ab-cdef-0123-456789abcdef'
                  and s.updated_at > '-infinity' order by s.updated_at desc, s.id limit 50";
    let plan: Vec<String> = sqlx::query_scalar(list).fetch_all(&mut connection).await.unwrap();
    assert!(plan.join("\n").contains("using session_updated on session"), "{plan:?}");
}
