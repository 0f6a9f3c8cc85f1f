//! Hosts that people allow when an agent asks for them.

use super::{HOST, ask_door, fetch, get, stack, store};
use e2e::{
    Stack,
    api::Api,
    turn::{Event, Watch, bash},
};
use rpc::v1::{self, PermissionAnswer, PermissionVerdict};
use serde_json::json;

/// What a door says about a host that people may allow.
const NEEDED: &str = "egress_permission_needed";

/// A stack in which people may allow the hosts below `example.com`, and nothing else is open.
async fn asking() -> Stack {
    let stack = stack().await;
    let network = json!({"allow": [], "ask": ["*.example.com"]});
    store(&stack.api, "", &json!({"environment": {"network": network}})).await;
    stack
}

/// A call that asks for a host.
fn ask_for(host: &str) -> String {
    format!("@tool network {}", json!({"hosts": host, "reason": "the packages are there"}))
}

/// The command of [`fetch`], as a call.
fn fetch_call() -> String {
    bash(&format!("exec 3<>/dev/tcp/127.0.0.1/3128 && printf '{}\\r\\n\\r\\n' >&3 && cat <&3", get(HOST)))
}

async fn answer(api: &Api, watch: &mut Watch, answer: PermissionAnswer) -> Event {
    let asked = watch.until(|event| event.kind == "permission.asked").await;
    api.reply(asked.properties["id"].as_str().unwrap(), answer, "").await.unwrap();
    asked
}

async fn results(api: &Api, session: &str) -> Vec<String> {
    api.tool_calls(session).await.into_iter().map(|call| call.result).collect()
}

#[tokio::test]
async fn people_open_a_host_until_the_turn_ends() {
    let stack = asking().await;
    let api = &stack.api;
    // No rule opens a host.
    let session = api.session_with_rules(&[("*", PermissionVerdict::Allow)]).await;
    let mut watch = Watch::start(api, &session).await;
    let steps = [fetch_call(), ask_for(HOST), fetch_call(), "@text over".to_owned()];
    api.prompt(&session, &steps.join("\n")).await.unwrap();
    let asked = watch.until(|event| event.kind == "permission.asked").await.properties;
    let open = v1::ListPermissionsRequest { session_id: session.clone(), ..Default::default() };
    let open = api.permissions().list_permissions(open).await.unwrap().into_inner().permissions;
    assert_eq!(open[0].reason, "the packages are there");
    api.reply(asked["id"].as_str().unwrap(), PermissionAnswer::Once, "").await.unwrap();
    assert_eq!((&asked["permission"], &asked["patterns"]), (&json!("network"), &json!([HOST])));
    assert_eq!(asked["metadata"]["reason"], "the packages are there", "people read why");
    assert_eq!(watch.until_idle().await, "done");
    let [refused, opened, reached] = results(api, &session).await.try_into().unwrap();
    assert!(refused.contains(NEEDED) && refused.contains("with the tool `network`"), "{refused}");
    assert!(opened.contains(&format!("reach {HOST} until this turn ends")), "{opened}");
    assert!(reached.contains("200 OK"), "{reached}");
    // Also for what the turn left behind.
    testkit::eventually("the host is closed again", async || {
        ask_door(&stack, &session).await.contains(NEEDED)
    })
    .await;
    let next = fetch(api, &session, &get(HOST)).await;
    assert!(next.contains(NEEDED), "{next}");
}

#[tokio::test]
async fn people_are_not_asked_for_what_they_cannot_open() {
    let stack = asking().await;
    let (api, session) = (&stack.api, stack.session().await);
    let mut watch = Watch::start(api, &session).await;
    let steps = ["evil.org", "https://a.example.com"].map(ask_for).join("\n");
    api.prompt(&session, &format!("{steps}\n{}\n@text over", ask_for(HOST))).await.unwrap();
    // The first request is about the third call.
    let asked = answer(api, &mut watch, PermissionAnswer::Reject).await.properties;
    assert_eq!(asked["patterns"], json!([HOST]));
    watch.until_idle().await;
    let [unlisted, no_host, rejected] = results(api, &session).await.try_into().unwrap();
    let want = "People cannot allow evil.org in this session: environment.network in the settings of the tenant does not list it";
    assert!(unlisted.contains(want), "{unlisted}");
    assert!(no_host.contains("is not a host name") && no_host.contains("Nothing was opened"), "{no_host}");
    assert!(rejected.contains("rejected permission"), "{rejected}");
    assert!(fetch(api, &session, &get(HOST)).await.contains(NEEDED));
}

#[tokio::test]
async fn what_people_always_allow_outlives_turns_workers_and_brokers() {
    let mut stack = asking().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let wait = bash("touch begun; until test -e go; do sleep 0.02; done");
    let steps = [ask_for(HOST), wait, fetch_call(), "@text over".to_owned()];
    stack.api.prompt(&session, &steps.join("\n")).await.unwrap();
    answer(&stack.api, &mut watch, PermissionAnswer::Always).await;
    let tree = stack.workspace(&session).join("tree");
    testkit::eventually("the command runs", async || tree.join("begun").exists()).await;
    // The next worker reads in the conversation what people have allowed.
    stack.crash_worker(0);
    stack.add_worker().await;
    std::fs::write(tree.join("go"), "").unwrap();
    assert_eq!(watch.until_idle().await, "done");
    let reached = results(&stack.api, &session).await.pop().unwrap();
    assert!(reached.contains("200 OK"), "{reached}");

    assert!(fetch(&stack.api, &session, &get(HOST)).await.contains("200 OK"), "in the next turn");
    stack.stop_broker().await;
    stack.start_broker().await;
    assert!(ask_door(&stack, &session).await.contains("200 OK"), "before any turn");
    // Other sessions have people of their own.
    let other = stack.session().await;
    assert!(fetch(&stack.api, &other, &get(HOST)).await.contains(NEEDED));
}

/// No tool of the next loop tells the broker.
#[tokio::test]
async fn a_host_closes_when_another_worker_ends_the_turn() {
    let mut stack = asking().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let wait = bash("touch begun; until test -e go; do sleep 0.02; done");
    stack.api.prompt(&session, &format!("{}\n{wait}\n@text over", ask_for(HOST))).await.unwrap();
    answer(&stack.api, &mut watch, PermissionAnswer::Once).await;
    let tree = stack.workspace(&session).join("tree");
    testkit::eventually("the command runs", async || tree.join("begun").exists()).await;
    assert!(ask_door(&stack, &session).await.contains("200 OK"));
    stack.crash_worker(0);
    stack.api.abort(&session).await.unwrap();
    stack.add_worker().await;
    testkit::eventually("the host is closed", async || ask_door(&stack, &session).await.contains(NEEDED))
        .await;
}
