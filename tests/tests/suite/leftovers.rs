//! Nothing stays of what was deleted, whatever was away at that time.

use e2e::{
    Options, Stack,
    api::assert_refused,
    turn::{assert_works, bash, run},
};
use rpc::v1;
use std::{
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};
use tonic::Code;

/// What the sandbox keeps of a session.
fn files_of(stack: &Stack, session: &str) -> [PathBuf; 2] {
    let tenant = stack.api.tenant_id.replace('-', "");
    ["ws", "execs"].map(|kind| stack.sandbox_data().join(kind).join(&tenant).join(session))
}

async fn sql(stack: &Stack, sql: &str) {
    let mut owner = stack.database.owner().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut *owner).await.unwrap();
}

async fn removals_left(stack: &Stack) -> i64 {
    let mut owner = stack.database.owner().await;
    sqlx::query_scalar("select count(*) from node_removal").fetch_one(&mut *owner).await.unwrap()
}

#[tokio::test]
async fn files_of_a_session_deleted_without_its_machine_are_removed_later() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    assert_eq!(run(&stack.api, &session, &bash("echo here > a.txt")).await.0, "done");
    let files = files_of(&stack, &session);
    assert!(files.iter().all(|directory| directory.is_dir()));
    stack.stop_sandbox().await;
    let request = v1::DeleteSessionRequest { session_id: session };
    stack.api.sessions().delete_session(request).await.unwrap();
    assert!(files.iter().all(|directory| directory.is_dir()), "nobody can remove them yet");

    stack.start_sandbox().await;
    // The next attempt is due at once, so that the test need not wait for it.
    sql(&stack, "update node_removal set next_at = now()").await;
    testkit::eventually("a worker removes the files", async || removals_left(&stack).await == 0).await;
    assert!(!files.iter().any(|directory| directory.exists()));
}

#[tokio::test]
async fn files_without_a_session_are_removed() {
    let options = Options { worker: &["--reconcile-ms", "2000"], ..Options::default() };
    let stack = Stack::with(options).await;
    let (orphan, recent, kept) = (stack.session().await, stack.session().await, stack.session().await);
    for session in [&orphan, &recent, &kept] {
        assert_eq!(run(&stack.api, session, &bash("echo here > a.txt")).await.0, "done");
    }
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    for session in [&orphan, &kept] {
        let [workspace, execs] = files_of(&stack, session);
        let fence = stack
            .sandbox_data()
            .join("fence")
            .join(workspace.strip_prefix(stack.sandbox_data().join("ws")).unwrap());
        for path in [workspace, execs, fence] {
            File::open(path).unwrap().set_modified(long_ago).unwrap();
        }
    }
    // A gateway of an earlier version died between the deletion and the removal of the files.
    sql(&stack, &format!("delete from session where id in ('{orphan}', '{recent}')")).await;
    let is_gone = |session: &str| !files_of(&stack, session).iter().any(|directory| directory.exists());
    testkit::eventually("the files are removed", async || is_gone(&orphan)).await;
    assert!(!is_gone(&recent), "files that were used lately are left alone");
    assert!(!is_gone(&kept));
    assert_works(&stack.api, &kept).await;
}

/// A word that occurs in everything of the first tenant, and nowhere else.
const MARKER: &str = "marker4711";

/// The tables with a row that contains the marker or the tenant's id, but for the audit, which says who deleted the tenant. Bytes print as hexadecimal digits.
async fn tables_with_traces(stack: &Stack, tenant: &str) -> Vec<String> {
    let mut connection = testkit::database::connect(&stack.database.migrator_url).await;
    let tables = "select relname::text from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace and relname <> 'audit' order by 1";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut connection).await.unwrap();
    let hex = domain::text::hex(MARKER.as_bytes());
    let mut found = vec![];
    for table in tables {
        let sql = format!(
            "select count(*) from {table} t where t::text like '%{MARKER}%' or t::text like '%{tenant}%' or t::text like '%{hex}%'"
        );
        let count: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap();
        if count > 0 {
            found.push(table);
        }
    }
    found
}

/// The files below a directory whose name or content has the marker.
fn files_with_traces(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.to_string_lossy().contains(MARKER) {
            found.push(path.clone());
        }
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_with_traces(&path));
        } else if path.is_file() && !path.is_symlink() {
            let content = std::fs::read(&path).unwrap_or_default();
            if content.windows(MARKER.len()).any(|bytes| bytes == MARKER.as_bytes()) {
                found.push(path);
            }
        }
    }
    found
}

/// Fills a tenant: a project, a bundle, a key, a session with files and outputs, an open request, a session whose turn runs.
async fn fill(stack: &Stack) {
    let api = &stack.api;
    let bundle = api.upload(&testkit::git::repository(&[("a.txt", MARKER)]).bundle()).await;
    let source = Some(v1::Source { from: Some(v1::source::From::BundleId(bundle)), revision: String::new() });
    let request = v1::CreateProjectRequest { name: MARKER.to_owned(), source, ..Default::default() };
    let project_id = api.projects().create_project(request).await.unwrap().into_inner().project.unwrap().id;
    let request = v1::CreateKeyRequest {
        tenant_id: String::new(),
        name: MARKER.to_owned(),
        role: v1::KeyRole::Admin.into(),
    };
    api.tenants().create_key(request).await.unwrap();
    let request = v1::CreateSessionRequest { project_id, title: MARKER.to_owned(), ..Default::default() };
    let session = api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id;
    let prompt = format!("{}\n@text {MARKER}", bash(&format!("cp a.txt {MARKER}; cat a.txt")));
    assert_eq!(run(api, &session, &prompt).await.0, "done");
    let asks = api.session_with_rules(&[("bash", v1::PermissionVerdict::Ask)]).await;
    let mut watch = e2e::turn::Watch::start(api, &asks).await;
    api.prompt(&asks, &bash(MARKER)).await.unwrap();
    watch.until(|event| event.kind == "permission.asked").await;
    let works = api.session(None).await;
    let mut watch = e2e::turn::Watch::start(api, &works).await;
    api.prompt(&works, &bash(&format!("echo {MARKER}; sleep 1000"))).await.unwrap();
    watch.until_output(MARKER).await;
}

#[tokio::test]
async fn no_byte_of_a_deleted_tenant_stays() {
    if e2e::is_left_out(&["redis"], "the test looks into Redis") {
        return;
    }
    let stack = Stack::start().await;
    let (tenant, plain) = (stack.api.tenant_id.clone(), stack.api.tenant_id.replace('-', ""));
    let other = stack.other_tenant().await;
    let others = other.session(None).await;
    assert_works(&other, &others).await;
    fill(&stack).await;
    for table in ["api_key", "bundle", "message", "part", "project", "request", "session", "session_event"] {
        assert!(tables_with_traces(&stack, &tenant).await.iter().any(|found| found == table), "{table}");
    }
    assert!(!files_with_traces(stack.sandbox_data()).is_empty());
    assert!(stack.redis_content().await.contains(&plain));

    let operator = stack.operator();
    let delete = |name: &str| v1::DeleteTenantRequest { tenant_id: tenant.clone(), name: name.to_owned() };
    let wrong = operator.tenants().delete_tenant(delete("umbrella")).await;
    assert_refused(wrong, Code::InvalidArgument, "tenant_name_wrong");
    let own = stack.api.tenants().delete_tenant(delete("acme")).await;
    assert_refused(own, Code::PermissionDenied, "operator_only");
    operator.tenants().delete_tenant(delete("acme")).await.unwrap();
    let began = Instant::now();
    testkit::eventually("its keys are refused", async || {
        let list = stack.api.sessions().list_sessions(v1::ListSessionsRequest::default()).await;
        list.is_err_and(|status| e2e::api::code(&status) == "key_unknown")
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_refused(
        operator.tenants().delete_tenant(delete("acme")).await,
        Code::NotFound,
        "tenant_not_found",
    );

    testkit::eventually("its rows are gone", async || tables_with_traces(&stack, &tenant).await.is_empty())
        .await;
    let files = files_with_traces(stack.sandbox_data());
    assert!(files.is_empty(), "{files:?}");
    testkit::eventually("its keys in Redis are gone", async || {
        let content = stack.redis_content().await;
        !content.contains(&plain) && !content.contains(MARKER)
    })
    .await;
    assert_works(&other, &others).await;
}
