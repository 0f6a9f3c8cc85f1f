//! The rows of deleted sessions: unreachable at once, removed in batches.

use crate::{
    family::permission,
    world::{Running, World},
};
use domain::{
    ids::{MessageId, PartId, SessionId},
    policy::quota::Usage,
};
use sqlx::{AssertSqlSafe, Connection as _};
use store::{
    Page, Store,
    error::{Entity, Error},
    log::{chunks::Chunk, record::Progress},
    people::requests::{NewAnswer, RequestScope},
    session::creation::NewSession,
};
use testkit::{database::connect, sample::NOW};

/// The tables whose rows go in batches.
const TABLES: [&str; 7] =
    ["part_chunk", "part", "message", "tool_exec", "request", "session_input", "session_event"];

/// Rows of a session in these tables, summed.
async fn rows_of(world: &World, session: &SessionId) -> i64 {
    let count = |table| format!("(select count(*) from {table} where session_id = '{session}')");
    world.number(&format!("select {}", TABLES.map(count).join(" + "))).await
}

/// Makes a running session with a row in each of the tables and a request. Returns the session and its first message.
async fn full_session(world: &mut World) -> (Running, MessageId) {
    let running = world.running().await;
    let (_, changes) = world.request(&running.session, permission());
    world.store.append(&running.write(1), &changes, 0, Progress::None, NOW).await.unwrap();
    let part_id = PartId::make(&mut world.sample.ids, NOW);
    let chunk = Chunk { part_id, offset_bytes: 0, text: "Hel".to_owned() };
    world.store.append_chunk(world.tenant, &running.session, 1, &chunk).await.unwrap();
    world.exec(&running.session).await;
    for table in TABLES {
        let count = format!("select count(*) from {table} where session_id = '{}'", running.session);
        assert!(world.number(&count).await > 0, "{table} has no row: this test would show nothing");
    }
    let page = world.store.list_messages(world.tenant, &running.session, &Page::default()).await.unwrap();
    (running, page.entries[0].message.id().clone())
}

/// Lengthens the log of a session by copies of its newest event. Returns the number of rows of the session.
async fn lengthen(world: &World, session: &SessionId, events: u32, properties: &str) -> i64 {
    world
        .sql(&format!(
            "insert into session_event (tenant_id, session_id, seq, epoch, id, kind, properties)
             select e.tenant_id, e.session_id, e.seq + n, e.epoch, e.id, e.kind, {properties}
               from (select * from session_event where session_id = '{session}' order by seq desc limit 1) e,
                    generate_series(1, {events}) n;
             update session_run set event_seq = event_seq + {events} where session_id = '{session}'"
        ))
        .await;
    rows_of(world, session).await
}

#[tokio::test]
async fn a_long_session_is_deleted_in_short_transactions() {
    let mut world = World::new().await;
    let (tenant, kept) = (world.tenant, world.running().await);
    let kept_rows = rows_of(&world, &kept.session).await;
    let (running, _) = full_session(&mut world).await;
    let session = running.session.clone();
    let rows = lengthen(&world, &session, 4_500, "e.properties").await;
    assert_eq!(world.store.list_row_removals(10).await.unwrap(), []);
    assert!(!world.store.has_row_removals(tenant).await.unwrap());

    world.store.delete_session(tenant, &session).await.unwrap();
    assert_eq!(rows_of(&world, &session).await, rows, "the deletion itself removes none of them");
    assert_eq!(world.store.list_row_removals(10).await.unwrap(), [tenant]);
    assert!(world.store.has_row_removals(tenant).await.unwrap());
    // Each step is done by a worker that knows nothing of the earlier ones.
    let mut steps = vec![];
    for _ in 0..3 {
        let worker = Store::connect(&world.database.app_url, &world.database.system_url, 1).unwrap();
        steps.push(worker.remove_rows(tenant).await.unwrap().unwrap());
        let left = rows - i64::try_from(steps.iter().sum::<u64>()).unwrap();
        assert_eq!(rows_of(&world, &session).await, left);
    }
    assert_eq!(steps[..2], [2_000, 2_000], "the bound of one transaction");
    assert_eq!(world.store.remove_rows(tenant).await.unwrap(), None, "the order is done");
    assert_eq!(world.store.list_row_removals(10).await.unwrap(), []);
    assert_eq!(rows_of(&world, &session).await, 0);
    assert_eq!(rows_of(&world, &kept.session).await, kept_rows, "other sessions keep theirs");
}

#[tokio::test]
async fn large_rows_are_removed_in_transactions_of_bounded_bytes() {
    let mut world = World::new().await;
    let session = world.session().await;
    // Values that Postgres does not compress.
    world.sql("alter table session_event alter column properties set storage external").await;
    lengthen(&world, &session, 10, "repeat('x', 1024 * 1024)").await;
    world.store.delete_session(world.tenant, &session).await.unwrap();
    assert_eq!(world.remove_rows(world.tenant).await, [9, 2], "8 MiB with the first event");
}

#[tokio::test]
async fn a_deleted_session_is_unreachable_while_its_rows_are_there() {
    let mut world = World::new().await;
    let tenant = world.tenant;
    let (running, message) = full_session(&mut world).await;
    let session = &running.session;
    let page = Page::default();
    let requests =
        async |scope, prefix| world.store.list_requests(tenant, scope, prefix, &page).await.unwrap();
    let request = requests(RequestScope::Tenant, "per").await.remove(0).request;
    world.store.delete_session(tenant, session).await.unwrap();
    assert!(rows_of(&world, session).await > 0);

    let store = &world.store;
    assert!(store.list_events(tenant, session, 0, 10).await.unwrap().events.is_empty());
    assert_eq!(store.find_event(tenant, session, 1).await.unwrap(), None);
    assert_eq!(store.find_first_since(tenant, session, 0).await.unwrap(), None);
    assert_eq!(store.list_written(tenant, 0).await.unwrap().1, []);
    assert!(store.list_messages(tenant, session, &page).await.unwrap().entries.is_empty());
    assert!(store.list_messages_after(tenant, session, 0, 10).await.unwrap().entries.is_empty());
    assert_eq!(store.load_conversation(tenant, session, 0).await.unwrap(), []);
    assert_eq!(store.load_outline(tenant, session).await.unwrap(), []);
    assert_eq!(store.find_newest_answer(tenant, session).await.unwrap(), None);
    let found = store.get_message(tenant, session, &message).await;
    assert!(matches!(found, Err(Error::NotFound(Entity::Message))), "{found:?}");
    assert_eq!(store.list_chunks(tenant, session, 1).await.unwrap(), []);
    assert_eq!(store.list_inputs(tenant, session, 0).await.unwrap(), []);
    assert_eq!(store.find_first_state(tenant, session).await.unwrap(), None);
    assert_eq!(store.list_answers(tenant, session, &[&request.part_id]).await.unwrap(), []);
    for scope in [RequestScope::Tenant, RequestScope::Session(session), RequestScope::Tree(session)] {
        assert_eq!(requests(scope, "per").await, []);
    }
    assert_eq!(store.list_requests_of(tenant, session, &[&request.part_id]).await.unwrap(), []);
    let answer = NewAnswer { answer: &domain::conversation::request::Answer::Once, by: "ann", epoch: None };
    let event = world.sample.event();
    let answered = store.answer_request(tenant, &request.id, answer, &event, NOW).await;
    assert!(matches!(answered, Err(Error::NotFound(Entity::Request))), "{answered:?}");
    let usage = Usage { sessions: 0, projects: 1, stored_bytes: 0 };
    assert_eq!(store.count_usage(tenant).await.unwrap(), usage);
    let late = world.append(&running.write(2)).await;
    assert!(matches!(late, Err(Error::Fenced)), "{late:?}");
    world.remove_rows(tenant).await;
    assert_eq!(tables_with(&world, session).await, ["node_removal", "session_tombstone"]);
}

/// All tables with a row that has the id of a session, by name.
async fn tables_with(world: &World, session: &SessionId) -> Vec<String> {
    let mut connection = connect(&world.database.migrator_url).await;
    let tables = "select relname::text from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace order by 1";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut connection).await.unwrap();
    let mut found = vec![];
    for table in tables {
        let sql = format!("select exists (select 1 from {table} t where t::text like '%{session}%')");
        if sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap() {
            found.push(table);
        }
    }
    found
}

#[tokio::test]
async fn the_id_of_a_deleted_session_is_refused_while_its_rows_are_there() {
    let mut world = World::new().await;
    let (tenant, id) = (world.tenant, world.session().await);
    world.store.delete_session(tenant, &id).await.unwrap();
    world.sql("delete from session_tombstone; delete from node_removal").await;
    let new = NewSession { id: id.clone(), ..world.new_session() };
    let event = world.sample.event();
    let refused = world.store.create_session(tenant, &new, &event, NOW).await;
    assert!(matches!(refused, Err(Error::Deleted)), "{refused:?}");
    world.remove_rows(tenant).await;
    world.store.create_session(tenant, &new, &event, NOW).await.unwrap();
}

#[tokio::test]
async fn tenants_take_turns_and_workers_share_the_sessions_of_one() {
    let mut world = World::new().await;
    let other = world.sample.tenant();
    let sessions = [world.session().await, world.session().await];
    for session in &sessions {
        world.store.delete_session(world.tenant, session).await.unwrap();
    }
    // A session of an earlier version: deleted without any order of ours.
    world.store.create_tenant(other, "second").await.unwrap();
    let order = format!("insert into row_removal (tenant_id, session_id) values ('{other}', 'ses_x')");
    world.sql(&order).await;
    let mut tenants = world.store.list_row_removals(10).await.unwrap();
    tenants.sort_by_key(|tenant| *tenant != world.tenant);
    assert_eq!(tenants, [world.tenant, other]);
    assert_eq!(world.store.list_row_removals(1).await.unwrap().len(), 1);

    let mut busy = connect(&world.database.migrator_url).await;
    let mut batch = busy.begin().await.unwrap();
    let lock = format!("select 1 from row_removal where session_id = '{}' for update", sessions[0]);
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *batch).await.unwrap();
    assert_eq!(world.remove_rows(world.tenant).await, [1], "the other session");
    batch.rollback().await.unwrap();
    assert_eq!(world.remove_rows(world.tenant).await, [1], "a worker died in the middle of its batch");
    assert_eq!(world.remove_rows(other).await, [0]);
}

#[tokio::test]
async fn every_deletion_orders_the_removal_of_the_rows() {
    let mut world = World::new().await;
    let (root, child) = (world.session().await, world.session().await);
    world
        .sql(&format!("update session set parent_id = '{root}', root_id = '{root}' where id = '{child}'"))
        .await;
    let alone = world.session().await;
    // As the tenants' role, which cannot write an order of another tenant; the deletion cascades to the child.
    let mut app = connect(&world.database.app_url).await;
    let delete = format!("set app.tenant = '{}'; delete from session where id = '{root}'", world.tenant);
    sqlx::raw_sql(AssertSqlSafe(delete)).execute(&mut app).await.unwrap();
    let ordered = "select count(*) from row_removal";
    assert_eq!(world.number(ordered).await, 2);
    world.sql("delete from tenant").await;
    assert_eq!(world.number(ordered).await, 3);
    assert!(rows_of(&world, &alone).await > 0);
    assert_eq!(world.remove_rows(world.tenant).await.len(), 3, "also when the tenant is gone");
    assert_eq!(rows_of(&world, &alone).await, 0);
}
