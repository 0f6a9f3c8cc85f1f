//! What sessions reach of the network: only what the settings of all levels allow, through the door of their own session.

mod permissions;
mod registries;

use e2e::{
    Options, Stack,
    api::Api,
    doors,
    settings::Outside,
    turn::{bash, run},
};
use rpc::v1;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// A host that the broker finds on this machine.
pub(crate) const HOST: &str = "packages.example.com";

/// A server outside that answers each request with its first line.
pub(crate) async fn outside() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 16 * 1024];
                let count = stream.read(&mut buffer).await.unwrap();
                let text = String::from_utf8_lossy(&buffer[..count]);
                let line = text.lines().next().unwrap_or_default();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
        }
    });
    address
}

async fn stack() -> Stack {
    let hosts = vec![format!("{HOST}={}", outside().await)];
    let outside = Outside { hosts, ..Outside::default() };
    Stack::with(Options { broker: true, outside, ..Options::default() }).await
}

/// Stores the settings of the tenant or of a project.
async fn store(api: &Api, project_id: &str, settings: &Value) {
    let request =
        v1::SetSettingsRequest { project_id: project_id.to_owned(), document: settings.to_string() };
    api.settings().set_settings(request).await.unwrap();
}

fn allow(hosts: &[&str]) -> Value {
    json!({"environment": {"network": {"allow": hosts}}})
}

/// Asks the proxy for a page with nothing but bash, and returns the output of the command.
async fn fetch(api: &Api, session: &str, request: &str) -> String {
    let command = format!(
        "exec 3<>/dev/tcp/127.0.0.1/3128 && printf '{request}\\r\\n\\r\\n' >&3 && cat <&3; echo; echo proxy=$https_proxy"
    );
    let (outcome, _) = run(api, session, &format!("{}\n@text over", bash(&command))).await;
    assert_eq!(outcome, "done");
    api.tool_calls(session).await.pop().unwrap().result
}

/// Asks the door of a session for a page, without the session.
pub(crate) async fn ask_door(stack: &Stack, session: &str) -> String {
    let mut door = doors::connect(stack, session, "socket").await;
    let request = format!("GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    door.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    door.read_to_string(&mut answer).await.unwrap();
    answer
}

pub(crate) fn get(host: &str) -> String {
    format!("GET http://{host}/simple/ HTTP/1.1\\r\\nHost: {host}")
}

#[tokio::test]
async fn a_session_reaches_what_every_level_of_settings_allows() {
    let stack = stack().await;
    let (api, session) = (&stack.api, stack.session().await);
    let project = api.project_id.clone();
    let refused = fetch(api, &session, &get(HOST)).await;
    assert!(
        refused.contains("egress_host_not_allowed")
            && refused.contains(&format!("{HOST} is not allowed: environment.network.allow is not set")),
        "{refused}"
    );
    assert!(refused.contains("proxy=http://127.0.0.1:3128"), "{refused}");
    store(api, &project, &allow(&["*.example.com"])).await;
    let reached = fetch(api, &session, &get(HOST)).await;
    assert!(reached.contains("200 OK") && reached.contains("GET /simple/ HTTP/1.1"), "{reached}");
    // The running sandbox follows the settings from turn to turn.
    store(api, "", &allow(&["pypi.org"])).await;
    let narrowed = fetch(api, &session, &get(HOST)).await;
    let setting = "environment.network.allow in the settings of the tenant does not list it";
    assert!(narrowed.contains(setting), "{narrowed}");
    let elsewhere = fetch(api, &session, "CONNECT 127.0.0.1:443 HTTP/1.1").await;
    assert!(elsewhere.contains("egress_host_invalid"), "{elsewhere}");

    // Another session has its own door.
    let other = stack.other_tenant().await;
    let others = other.session(None).await;
    let refused = fetch(&other, &others, &get(HOST)).await;
    assert!(refused.contains("environment.network.allow is not set"), "{refused}");
    store(api, "", &allow(&["*.example.com"])).await;
    assert!(fetch(api, &session, &get(HOST)).await.contains("200 OK"));
    let still = fetch(&other, &others, &get(HOST)).await;
    assert!(still.contains("environment.network.allow is not set"), "{still}");
}

#[tokio::test]
async fn what_a_session_reached_is_listed() {
    let mut stack = stack().await;
    let session = stack.session().await;
    store(&stack.api, "", &allow(&[HOST])).await;
    fetch(&stack.api, &session, &get(HOST)).await;
    fetch(&stack.api, &session, &get("evil.example.com")).await;
    fetch(&stack.api, &session, &get(HOST)).await;
    let request = |api: &Api| {
        let (mut sessions, session_id) = (api.sessions(), session.clone());
        async move { sessions.list_egress(v1::ListEgressRequest { session_id, page: None }).await }
    };
    let total = |accesses: &[v1::EgressAccess]| accesses.iter().map(|access| access.connections).sum::<u64>();
    testkit::eventually("the three connections have ended", async || {
        let log = request(&stack.api).await.unwrap().into_inner();
        assert!(!log.newest_missing);
        total(&log.accesses) == 3
    })
    .await;
    // Without the broker, people read what is stored.
    stack.stop_broker().await;
    let v1::ListEgressResponse { mut accesses, newest_missing, .. } =
        request(&stack.api).await.unwrap().into_inner();
    assert!(newest_missing);
    assert_eq!(total(&accesses), 3, "{accesses:?}");
    accesses.sort_by(|one, other| one.host.cmp(&other.host));
    let refused = &accesses[0];
    assert_eq!(
        (refused.host.as_str(), refused.code.as_str()),
        ("evil.example.com", "egress_host_not_allowed")
    );
    assert_eq!(refused.bytes, 0);
    assert!(
        accesses[1].bytes > 40 && accesses[1].code.is_empty() && accesses[1].host == HOST,
        "{accesses:?}"
    );
    let other = stack.other_tenant().await;
    assert_eq!(e2e::api::code(&request(&other).await.unwrap_err()), "session_not_found");
}

#[tokio::test]
async fn the_door_is_open_again_after_the_broker_was_away() {
    let mut stack = stack().await;
    let session = stack.session().await;
    store(&stack.api, "", &allow(&[HOST])).await;
    assert!(fetch(&stack.api, &session, &get(HOST)).await.contains("200 OK"));
    stack.stop_broker().await;
    let away = fetch(&stack.api, &session, &get(HOST)).await;
    assert!(away.contains("egress_unavailable"), "{away}");
    // Before any turn asks for it, the door is what it was.
    stack.start_broker().await;
    let answer = ask_door(&stack, &session).await;
    assert!(answer.contains("200 OK"), "{answer}");
    assert!(fetch(&stack.api, &session, &get(HOST)).await.contains("200 OK"));
}
