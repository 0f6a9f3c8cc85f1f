//! The value of a secret is nowhere but in the memory of the broker: not in Postgres, Redis, NATS, logs and spans.

use super::{list, remove, set};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use e2e::{
    Options, Stack,
    settings::Outside,
    turn::{assert_works, bash, run},
};
use rpc::v1;
use serde_json::json;
use std::{
    io::Write,
    sync::{Arc, Mutex},
};
use testkit::git_server::GitServer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

/// The beginning of the value. It is in no other text.
const MARKER: &str = "hunter-4711-value";

/// A server of git that the broker finds on this machine.
const GIT_HOST: &str = "git.example.com";

/// What was written so far.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<u8>>>);

impl Record {
    fn contains(&self, bytes: &[u8]) -> bool {
        self.around(bytes).is_some()
    }

    /// The beginning of the line that contains these bytes, and what follows them.
    fn around(&self, bytes: &[u8]) -> Option<String> {
        let record = self.0.lock().unwrap();
        let at = record.windows(bytes.len()).position(|window| window == bytes)?;
        let line = record[..at].rsplit(|byte| *byte == b'\n').next()?.len();
        let end = record.len().min(at + 200);
        Some(String::from_utf8_lossy(&record[at - line..end]).into_owned())
    }
}

impl Write for Record {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Record {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Records every message of NATS.
async fn listen(nats_url: &str) -> Record {
    let record = Record::default();
    let (login, address) = nats_url.trim_start_matches("nats://").split_once('@').unwrap();
    let (user, pass) = login.split_once(':').unwrap();
    let hello = serde_json::json!({"verbose": false, "user": user, "pass": pass});
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(format!("CONNECT {hello}\r\nSUB > 1\r\nPING\r\n").as_bytes()).await.unwrap();
    let own = record.clone();
    tokio::spawn(async move {
        let mut bytes = [0; 16 * 1024];
        while let Ok(count @ 1..) = connection.read(&mut bytes).await {
            own.0.lock().unwrap().extend(&bytes[..count]);
        }
    });
    testkit::eventually("NATS answers", async || record.contains(b"PONG")).await;
    record
}

/// The tables of which a row contains a text, in any form in which Postgres prints it.
async fn tables_with(stack: &Stack, text: &str) -> Vec<String> {
    let mut connection = testkit::database::connect(&stack.database.migrator_url).await;
    let tables = "select relname::text from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace order by 1";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut connection).await.unwrap();
    let (hex, mut found) = (domain::text::hex(text.as_bytes()), vec![]);
    for table in tables {
        // Parameters, because the text of a statement is in the log of this test.
        let sql = format!(
            "select count(*) from {table} t where strpos(t::text, $1) > 0 or strpos(t::text, $2) > 0"
        );
        let search = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(text).bind(&hex);
        let count: i64 = search.fetch_one(&mut connection).await.unwrap();
        found.extend((count > 0).then_some(table));
    }
    found
}

/// The form in which Rust prints bytes.
fn as_numbers(text: &str) -> String {
    format!("{:?}", text.as_bytes()).trim_matches(['[', ']']).to_owned()
}

/// The beginning of a token as it is in the header of a login. The user before it has a length that keeps the rest in step.
fn encoded(token: &str) -> String {
    let login = STANDARD.encode(format!("x-access-token:{token}"));
    // The last characters depend on what follows.
    login[20..36].to_owned()
}

/// Clones a private repository with a token, and fails to clone another one with it. Its install prints the token too.
async fn clone_with(stack: &Stack, server: &GitServer, token: &str) {
    server.push("acme/app.git", &testkit::git::repository(&[("file", "private\n")]));
    server.require(&format!("x-access-token:{token}"));
    set(&stack.api, "", "GIT_TOKEN", token.as_bytes()).await.unwrap();
    let environment = json!({
        "git": {"credentials": {format!("https://{GIT_HOST}/"): "GIT_TOKEN"}},
        "install": "echo $TOKEN; env; mkdir kept", "secrets": {"TOKEN": "GIT_TOKEN"},
    });
    stack.api.set_environment("", &environment).await;
    for (path, outcome) in [("acme/app.git", "done"), ("acme/missing.git", "failed")] {
        let from = Some(v1::source::From::GitUrl(format!("https://{GIT_HOST}/{path}")));
        let session = stack.api.session(Some(v1::Source { from, revision: String::new() })).await;
        let fetch = format!("{}\n@text over", bash("git fetch && ls kept && env"));
        assert_eq!(run(&stack.api, &session, &fetch).await.0, outcome, "{path}");
    }
    let shown = server.requests().into_iter().filter_map(|request| request.authorization);
    assert!(shown.filter(|shown| shown.contains(&encoded(MARKER))).count() > 2, "the server gets the token");
}

// The subscriber is global in a process, so this file has one test.
#[tokio::test]
async fn the_value_of_a_secret_is_nowhere() {
    if e2e::is_left_out(&["redis", "nats"], "the test looks into Redis and NATS") {
        return;
    }
    let log = Record::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(log.clone())
        .init();
    let messages = listen(&testkit::servers().await.nats_url).await;
    let server = GitServer::start(&[GIT_HOST]).await;
    let outside = Outside {
        hosts: vec![format!("{GIT_HOST}={}", server.address)],
        git_certificate: Some(server.certificate.clone()),
        ..Outside::default()
    };
    let stack = Stack::with(Options { broker: true, outside, ..Options::default() }).await;
    let project = stack.api.project_id.clone();
    let value = format!("{MARKER}{}", "x".repeat(10_000));
    clone_with(&stack, &server, &value).await;
    set(&stack.api, &project, "NPM_TOKEN", value.as_bytes()).await.unwrap();
    set(&stack.api, "", "NPM_TOKEN", value.as_bytes()).await.unwrap();
    // Refusals: of the gateway, and of the broker behind it.
    set(&stack.api, "", "wrong name", value.as_bytes()).await.unwrap_err();
    let mut connection = testkit::database::connect(&stack.database.migrator_url).await;
    sqlx::raw_sql("revoke insert on secret from flotilla_broker").execute(&mut connection).await.unwrap();
    let failed = set(&stack.api, "", "OTHER", value.as_bytes()).await.unwrap_err();
    assert_eq!(e2e::api::code(&failed), "broker_failed");
    assert_works(&stack.api, &stack.session().await).await;
    assert_eq!(list(&stack.api, "").await.unwrap().len(), 3);

    assert_eq!(tables_with(&stack, "NPM_TOKEN").await, ["audit", "secret"], "the search finds what is there");
    assert_eq!(tables_with(&stack, MARKER).await, Vec::<String>::new());
    assert!(!stack.redis_content().await.contains(MARKER));
    remove(&stack.api, &project, "NPM_TOKEN").await.unwrap();
    let lines =
        ["a secret was set", "a secret was deleted", "PutSecret failed", "a setup or an install got secrets"];
    for line in lines {
        assert!(log.contains(line.as_bytes()), "{line}");
    }
    assert!(messages.contains(b"session.idle"), "the messages of the session are there");
    for record in [&log, &messages] {
        assert_eq!(record.around(MARKER.as_bytes()), None);
        assert_eq!(record.around(as_numbers(MARKER).as_bytes()), None);
        assert_eq!(record.around(encoded(MARKER).as_bytes()), None);
    }
}
