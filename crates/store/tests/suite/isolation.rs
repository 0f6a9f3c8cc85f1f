//! Row-level security as the second barrier: the result of a query without a filter, and of each function for another
//! tenant.

use crate::{
    family::permission,
    tenant::{accesses::access, secrets::sealed},
    world::{World, idle},
};
use domain::policy::role::Role;
use domain::{
    conversation::request::Answer,
    ids::{PartId, ProjectId, SessionId, TenantId, WorktreeId},
    secret::SecretAddress,
    session::{Origin, Outcome, Source, files::SourceFiles},
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use store::{
    Actor, Page,
    broker::{BrokerStore, secrets::SecretVersion},
    error::{Entity, Error},
    log::{
        chunks::Chunk,
        record::{Fence, Progress},
    },
    loop_start::KeptPosition,
    people::{
        environments::{EnvironmentQuery, NewDecision, NewProposal},
        requests::{NewAnswer, RequestScope},
    },
    session::{
        quarantine::{Notice, QuarantineRule},
        runs::{SuspectPolicy, TakeOver, TakeResult, TakenSession},
        sessions::{Filter, Patch},
        tree::children::Dispatch,
    },
    tenant::{
        bundles::UploadContent,
        forge::ThreadKey,
        jobs::NewJob,
        readings::{NewReading, PeoplesSource},
        worktrees::Worktree,
    },
};
use testkit::{database::connect, sample::NOW};
use uuid::Uuid;

/// Two tenants; the first has rows in every table.
async fn two_tenants() -> (World, crate::world::Running, TenantId) {
    let mut world = World::new().await;
    let running = world.running().await;
    let (_, changes) = world.request(&running.session, permission());
    let spend = world.spend(domain::money::Tokens::default(), 1);
    let changes: Vec<_> = changes.into_iter().chain([spend]).collect();
    world.store.append(&running.write(1), &changes, 0, Progress::None, NOW).await.unwrap();
    let (store, tenant) = (&world.store, world.tenant);
    store.create_key(tenant, "fl_abc", &[7; 32], "laptop", Role::Admin).await.unwrap();
    let upload = store.begin_upload(tenant).await.unwrap();
    store.put_upload_piece(&upload, 0, b"data").await.unwrap();
    store.finish_upload(&upload, UploadContent { sha256: "b1", size_bytes: 4, head: None }).await.unwrap();
    let part_id = PartId::make(&mut world.sample.ids, NOW);
    let chunk = Chunk { part_id, offset_bytes: 0, text: "Hel".to_owned() };
    store.append_chunk(tenant, &running.session, 1, &chunk).await.unwrap();
    world.exec(&running.session).await;
    let approval = "insert into approval (tenant_id, request_id, permission, pattern, approved_by)
                    select id, 'per_1', 'bash', 'ls *', 'ann' from tenant";
    world.sql(approval).await;
    store.put_settings(tenant, None, "{}", "ann").await.unwrap();
    store.add_project_places(tenant, &world.project, &["/home/ann/app".to_owned()]).await.unwrap();
    let worktree = Worktree {
        id: WorktreeId::make(&mut world.sample.ids, NOW),
        project: world.project.clone(),
        name: "fix".to_owned(),
        directory: "sample.worktrees/fix".to_owned(),
        branch: "opencode/fix".to_owned(),
    };
    store.create_worktree(tenant, &worktree, 1).await.unwrap();
    let broker = BrokerStore::connect(&world.database.broker_url, 1).unwrap();
    let address = SecretAddress { project: None, name: "NPM_TOKEN".parse().unwrap() };
    let version = broker.begin_change(tenant, &address).await.unwrap().version;
    let value = SecretVersion { version, sealed: sealed("v"), urls: vec![] };
    broker
        .finish_change(tenant, &address, &value, &Actor { name: "ann".to_owned(), key: "flk_ann".to_owned() })
        .await
        .unwrap()
        .unwrap();
    let new = proposal(&world.project, &running.session);
    store.propose_environment(tenant, new).await.unwrap();
    store.note_shown_layer(tenant, "sha256:a").await.unwrap();
    let source = Source { origin: Origin::GitUrl("https://h.org/a.git".to_owned()), ..Source::default() };
    let SourceFiles::People(files) = source.files() else { panic!("files of people") };
    let of = PeoplesSource { project: &world.project, source: &source, files };
    let new = NewReading { commit: "c1", question: &[], reading: b"text" };
    store.note_reading(tenant, of, new).await.unwrap();
    store.bind_installation(tenant, 7, "acme", "ann").await.unwrap();
    store.put_thread(tenant, ThreadKey { repository: 1, number: 2 }, &running.session).await.unwrap();
    let job = NewJob { id: running.session.as_str(), kind: "pull_request", state: "{}" };
    store.send_to_job(tenant, job, "one", "{}").await.unwrap();
    broker.add_egress(tenant, &running.session, &[access("pypi.org")]).await.unwrap();
    let deleted = world.session().await;
    world.store.delete_session(tenant, &deleted).await.unwrap();
    let stranger = world.sample.tenant();
    world.store.create_tenant(stranger, "second").await.unwrap();
    (world, running, stranger)
}

/// Lists every table except the migrations' own, `worker`, `chore`, `sandbox_service`, `forge_app`, `forge_delivery`, `secret_key` and `key_canary`, which have no tenant, and `secret_counter`, which only
/// the broker reaches. New tables are included automatically.
async fn tables(world: &World) -> Vec<String> {
    let rows = sqlx::query(
        "select relname::text as name, relrowsecurity and relforcerowsecurity as walled from pg_class
          where relkind = 'r' and relnamespace = 'public'::regnamespace
            and relname not in ('_sqlx_migrations', 'worker', 'chore', 'sandbox_service', 'forge_app', 'forge_delivery', 'secret_counter', 'secret_key', 'key_canary') order by relname",
    )
    .fetch_all(&mut connect(&world.database.migrator_url).await)
    .await
    .unwrap();
    assert!(rows.len() >= 14);
    let name = |row: &sqlx::postgres::PgRow| row.get::<String, _>("name");
    assert!(rows.iter().all(|row| row.get("walled")), "{:?}", rows.iter().map(name).collect::<Vec<_>>());
    rows.iter().map(name).collect()
}

async fn see_as(connection: &mut PgConnection, tenant: &str) {
    sqlx::query("select set_config('app.tenant', $1, false)").bind(tenant).execute(connection).await.unwrap();
}

async fn count_as(connection: &mut PgConnection, tenant: Option<&str>, table: &str) -> i64 {
    if let Some(tenant) = tenant {
        see_as(connection, tenant).await;
    }
    let sql = AssertSqlSafe(format!("select count(*) from {table}"));
    sqlx::query(sql).fetch_one(connection).await.unwrap().get(0)
}

/// Returns the error code of a statement that must fail.
async fn refusal(connection: &mut PgConnection, sql: String) -> String {
    let error = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(connection).await.expect_err(&sql);
    error.as_database_error().and_then(|error| error.code()).unwrap().into_owned()
}

fn proposal<'a>(project: &'a ProjectId, session: &'a SessionId) -> NewProposal<'a> {
    NewProposal { project, session, file: "f", document: "{}", unused: &[], repository: None }
}

#[tokio::test]
async fn a_query_without_a_filter_sees_one_tenant_or_nothing() {
    let (world, _, stranger) = two_tenants().await;
    let mut connection = connect(&world.database.app_url).await;
    for table in tables(&world).await {
        // The other tenant is a row of `tenant` itself, and the audit has a line about its creation.
        let strangers = i64::from(["tenant", "audit"].contains(&table.as_str()));
        assert_eq!(
            count_as(&mut connection, Some(&stranger.to_string()), &table).await,
            strangers,
            "{table}"
        );
        let own = count_as(&mut connection, Some(&world.tenant.to_string()), &table).await;
        assert!(own > 0, "{table} has no row: this test would show nothing");
        let unset = count_as(&mut connection, Some(""), &table).await;
        let mut fresh = connect(&world.database.app_url).await;
        let never_set = count_as(&mut fresh, None, &table).await;
        fresh.close().await.unwrap();
        assert_eq!((unset, never_set), (0, 0), "{table}");
    }
}

#[tokio::test]
async fn a_tenant_cannot_write_for_another() {
    const NOT_ALLOWED: &str = "42501";
    let (world, _, stranger) = two_tenants().await;
    let mut connection = connect(&world.database.app_url).await;
    see_as(&mut connection, &world.tenant.to_string()).await;
    for table in tables(&world).await {
        let owner = if table == "tenant" { "id" } else { "tenant_id" };
        // Postgres alone gives the lines of the audit their positions.
        let given = if table == "audit" { "overriding user value" } else { "" };
        let insert = format!(
            "insert into {table} {given} select (jsonb_populate_record(t, '{{\"{owner}\":\"{stranger}\"}}')).* from {table} t limit 1"
        );
        let change = format!("update {table} set {owner} = '{stranger}'");
        assert_eq!(refusal(&mut connection, insert).await, NOT_ALLOWED, "{table}");
        assert_eq!(refusal(&mut connection, change).await, NOT_ALLOWED, "{table}");
    }
    let others = [
        "worker",
        "chore",
        "sandbox_service",
        "forge_app",
        "forge_delivery",
        "secret_counter",
        "secret_key",
        "key_canary",
    ];
    for table in others {
        assert_eq!(refusal(&mut connection, format!("select * from {table}")).await, NOT_ALLOWED, "{table}");
    }
    assert_eq!(refusal(&mut connection, "set role flotilla_system".to_owned()).await, NOT_ALLOWED);
}

#[tokio::test]
async fn another_tenant_changes_and_deletes_nothing() {
    let (world, _, stranger) = two_tenants().await;
    let mut connection = connect(&world.database.app_url).await;
    see_as(&mut connection, &stranger.to_string()).await;
    for table in tables(&world).await.into_iter().filter(|table| {
        !["tenant", "ledger", "audit", "secret", "egress_access", "tenant_layer"].contains(&table.as_str())
    }) {
        for sql in [format!("update {table} set tenant_id = '{stranger}'"), format!("delete from {table}")] {
            let result = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut connection).await.unwrap();
            assert_eq!(result.rows_affected(), 0, "{sql}");
        }
    }
    // Even its own tenant cannot remove a ledger entry or a line of the audit.
    for sql in [
        "update ledger set cost_usd_picos = 0",
        "delete from ledger",
        "update audit set actor = ''",
        "delete from audit",
    ] {
        assert_eq!(refusal(&mut connection, sql.to_owned()).await, "42501", "{sql}");
    }
    let deletion = sqlx::raw_sql("delete from secret").execute(&mut connection).await.unwrap();
    assert_eq!(deletion.rows_affected(), 0);
}

#[tokio::test]
async fn reading_functions_return_nothing_to_another_tenant() {
    let (world, running, stranger) = two_tenants().await;
    let (store, session) = (&world.store, &running.session);
    let message =
        store.list_messages(world.tenant, session, &Page::default()).await.unwrap().entries.remove(0);
    assert!(matches!(store.get_session(stranger, session).await, Err(Error::NotFound(_))));
    assert!(matches!(store.get_head(stranger, session).await, Err(Error::NotFound(_))));
    assert_eq!(store.list_heads(stranger, &[session]).await.unwrap(), []);
    assert!(matches!(
        store.get_message(stranger, session, message.message.id()).await,
        Err(Error::NotFound(_))
    ));
    assert!(matches!(store.get_project(stranger, &world.project).await, Err(Error::NotFound(_))));
    assert_eq!(store.find_projects(stranger, &[&world.project]).await.unwrap(), []);
    assert_eq!(store.find_worktree(stranger, "sample.worktrees/fix").await.unwrap(), None);
    assert_eq!(store.find_bundle_piece(stranger, "b1", 0).await.unwrap(), None);
    assert_eq!(store.find_bundle_start(stranger, "b1", 5).await.unwrap(), None);
    assert!(!store.has_bundle(stranger, "b1").await.unwrap());
    assert_eq!(store.list_sessions(stranger, &Filter::default(), &Page::default()).await.unwrap(), []);
    assert_eq!(store.list_messages(stranger, session, &Page::default()).await.unwrap().entries, []);
    assert_eq!(store.find_newest_answer(stranger, session).await.unwrap(), None);
    assert_eq!(store.load_conversation(stranger, session, 0).await.unwrap(), []);
    let fence = Fence { tenant: stranger, session: session.clone(), epoch: 1, write_seq: 0 };
    let kept = KeptPosition { event_seq: 1, event_id: "evt_1".to_owned(), read_after: 0 };
    let read = store.get_session_with_settings(stranger, session).await;
    assert!(matches!(read, Err(Error::NotFound(_))));
    let take_over = TakeOver { fence, input_ack: 0, attempts: 1 };
    let stored = store.get_session_with_settings(world.tenant, session).await;
    let start = store.read_loop_start(TakenSession { take_over, stored }, Some(&kept)).await.unwrap();
    assert_eq!((start.inputs, start.messages, start.continues_kept), (vec![], vec![], false));
    assert_eq!(store.list_events(stranger, session, 0, 10).await.unwrap().events, []);
    let opened = store.open_event_pages(stranger, session.clone(), 0).await;
    assert!(matches!(opened, Err(Error::NotFound(_))), "{opened:?}");
    assert_eq!(store.find_event(stranger, session, 1).await.unwrap(), None);
    assert_eq!(store.list_inputs(stranger, session, 0).await.unwrap(), []);
    assert_eq!(store.list_chunks(stranger, session, 1).await.unwrap(), []);
    assert_eq!(store.list_projects(stranger, &Page::default()).await.unwrap(), []);
    assert_eq!(store.list_keys(stranger, &Page::default()).await.unwrap(), []);
    assert_eq!(store.list_secrets(stranger, None, &Page::default()).await.unwrap(), []);
    let name = "NPM_TOKEN".parse().unwrap();
    let versions = store.find_secret_versions(stranger, &world.project, &[name]).await.unwrap();
    assert!(versions.is_empty(), "{versions:?}");
    assert_eq!(store.list_proposed_environments(stranger, &world.project).await.unwrap(), []);
    let query = EnvironmentQuery { project: &world.project, session, document: "{}", repository: None };
    let found = store.find_environment(stranger, query).await.unwrap();
    assert_eq!((found.own, found.allowed), (None, None));
    let open =
        store.list_requests(world.tenant, RequestScope::Tenant, "per", &Page::default()).await.unwrap();
    let part = &open[0].request.part_id;
    assert_eq!(
        store.list_requests(stranger, RequestScope::Tenant, "per", &Page::default()).await.unwrap(),
        []
    );
    assert_eq!(store.list_requests_of(stranger, session, &[part]).await.unwrap(), []);
    assert_eq!(store.list_answers(stranger, session, &[part]).await.unwrap(), []);
    assert_eq!(store.list_descendants(stranger, session).await.unwrap(), []);
    assert_eq!(store.list_deleted(stranger, 0).await.unwrap(), []);
    assert!(!store.is_aborted(stranger, session).await.unwrap());
}

#[tokio::test]
async fn writing_functions_change_nothing_for_another_tenant() {
    let (mut world, running, stranger) = two_tenants().await;
    let (session, event) = (running.session.clone(), world.sample.event());
    let fence = Fence { tenant: stranger, ..running.write(2) };
    let (call, changes) = world.call(&session);
    let child = world.new_child(&call);
    let events = std::array::from_fn(|_| world.sample.event());
    let open =
        world.store.list_requests(world.tenant, RequestScope::Tenant, "per", &Page::default()).await.unwrap();
    let prompt = world.prompt(&session, "hello");
    let mut new = world.new_session();
    let part_id = PartId::make(&mut world.sample.ids, NOW);
    let before = world.number("select sum(hashtext(r::text))::bigint from session_run r").await;
    let store = &world.store;
    let end = idle(Outcome::Done, None);
    assert!(matches!(store.accept_prompt(stranger, &prompt, NOW).await, Err(Error::NotFound(_))));
    assert!(matches!(store.accept_abort(stranger, &session, "a1").await, Err(Error::NotFound(_))));
    let patch = Patch { title: Some("Mine".to_owned()), archived: None, ..Patch::default() };
    assert!(matches!(
        store.update_session(stranger, &session, &patch, &event, NOW).await,
        Err(Error::NotFound(_))
    ));
    assert!(matches!(store.delete_session(stranger, &session).await, Err(Error::NotFound(_))));
    assert!(matches!(store.revoke_key(stranger, "fl_abc").await, Err(Error::NotFound(_))));
    let proposal = proposal(&world.project, &session);
    let digest = store.propose_environment(stranger, proposal).await.unwrap().digest;
    let decision = NewDecision { project: &world.project, digest: &digest, is_allowed: true, by: "stranger" };
    let decided = store.decide_environment(stranger, decision).await;
    assert!(matches!(decided, Err(Error::NotFound(Entity::ProposedEnvironment))), "{decided:?}");
    let address = SecretAddress { project: None, name: "NPM_TOKEN".parse().unwrap() };
    assert!(matches!(store.delete_secret(stranger, &address).await, Err(Error::NotFound(Entity::Secret))));
    assert!(matches!(store.append(&fence, &[], 0, Progress::Made, NOW).await, Err(Error::Fenced)));
    assert!(matches!(store.park(&fence, &[], 1, &end, NOW).await, Err(Error::Fenced)));
    let chunk = Chunk { part_id, offset_bytes: 0, text: "Hel".to_owned() };
    assert!(matches!(store.append_chunk(stranger, &session, 1, &chunk).await, Err(Error::Fenced)));
    let taken = store.take_session(stranger, &session, Uuid::now_v7(), SuspectPolicy::Accept).await.unwrap();
    assert!(matches!(taken, TakeResult::Unavailable), "{taken:?}");
    let dispatched = store.dispatch_child(&fence, &changes, &child, Dispatch::New, NOW).await;
    assert!(matches!(dispatched, Err(Error::Fenced)), "{dispatched:?}");
    let report = store.report_child(&fence, &call, &serde_json::json!([]), &event, NOW).await;
    assert_eq!(report.unwrap(), None);
    let answer = &Answer::Always { scope: domain::policy::permission::Scope::Tenant };
    assert!(matches!(store.abort_below_fenced(&fence, "a1").await.as_deref(), Ok([])));
    let reply = NewAnswer { answer, by: "stranger", epoch: None };
    let answered = store.answer_request(stranger, &open[0].request.id, reply, &event, NOW).await;
    assert!(matches!(answered, Err(Error::NotFound(Entity::Request))), "{answered:?}");
    let notice = Notice { reason: "stranger", event_ids: events, at: NOW };
    let stopped = store.quarantine(stranger, &session, QuarantineRule::Any, notice).await;
    assert_eq!(stopped.unwrap(), None);
    world.sql("update session_run set phase = 4").await;
    assert_eq!(store.release(stranger, &session, event.clone(), NOW).await.unwrap(), None);
    world.sql("update session_run set phase = 2").await;
    // These return nothing, and must not have changed any row either.
    store.refuse(&fence, "stranger").await.unwrap();
    store.hand_over(&fence).await.unwrap();
    assert!(!store.raise_epoch(&fence, 10).await.unwrap());
    store.fail_attempt(stranger, &session, 1).await.unwrap();
    // The session of one tenant cannot belong to a project of another.
    new.project_id = world.project.clone();
    assert!(matches!(
        store.create_session(stranger, &new, &event, NOW).await,
        Err(Error::NotFound(Entity::Project))
    ));
    store.create_project(stranger, &world.project, "sample", &Source::default()).await.unwrap();

    let after = world.number("select sum(hashtext(r::text))::bigint from session_run r").await;
    assert_eq!(before, after, "the control rows are unchanged");
    assert_eq!(world.number("select count(*) from part_chunk").await, 1);
    assert_eq!(world.number("select count(*) from tool_exec where state = 'executing'").await, 2);
    assert_eq!(world.number("select count(*) from request where answer is null").await, 1);
    assert!(store.find_key(&[7; 32]).await.unwrap().is_some());
}
