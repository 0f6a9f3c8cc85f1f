//! What people read while the files of a session open.

use super::{Testbed, link_submodule};
use domain::event::WORKSPACE_PROGRESS;
use e2e::turn::{Watch, bash};
use rpc::v1::{self, subscribe_all_response::Item};
use serde_json::Value;
use testkit::{git::repository, git_server::rules::GitFault};

const CONTENT: &[u8] = b"the content of a file of Git LFS\n";

/// Whether the suite runs without NATS, which carries notices. The test is then skipped.
fn is_without_notices() -> bool {
    e2e::is_left_out(&["nats"], "notices come through NATS only")
}

/// Text that git can hardly compress.
fn noise(length: usize) -> String {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'0' + u8::try_from(state >> 58).unwrap())
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Reads the stream of a client of OpenCode up to an event of this type.
async fn read_until(stream: &mut reqwest::Response, kind: &str) -> String {
    let mut text = String::new();
    while !text.contains(kind) {
        let piece = testkit::within(kind, stream.chunk()).await.unwrap().expect("no end");
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    text
}

/// Sends a prompt whose tool needs the files.
async fn prompt(testbed: &Testbed, session: &str) {
    let prompt = format!("{}\n@text over", bash("cat file"));
    testbed.stack.api.prompt(session, &prompt).await.unwrap();
}

#[tokio::test]
async fn a_subscriber_reads_that_a_clone_goes_on_before_any_tool_has_a_result() {
    if is_without_notices() {
        return;
    }
    let testbed = Testbed::start().await;
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    testbed.server.fail("app.git/git-upload-pack", GitFault::Hold(0));
    let request = v1::SubscribeAllRequest::default();
    let mut all = api.events().subscribe_all(request).await.unwrap().into_inner();
    let url = format!("{}/global/event", testbed.stack.gateway_url());
    let connecting = reqwest::Client::new().get(url).bearer_auth(&api.key).send();
    let mut opencode = connecting.await.unwrap();
    let mut told = read_until(&mut opencode, "server.connected").await;
    let mut watch = Watch::start(api, &session).await;
    prompt(&testbed, &session).await;
    let first = watch.until_notice(|notice| notice["done"] == 0).await;
    assert_eq!(first["sessionID"], session.as_str());
    assert!(first["stage"] == "clone" && first["unit"] == "bytes", "{first}");
    assert!(first["elapsedMs"].as_u64().unwrap() >= 2_000, "{first}");
    let second = watch.until_notice(|notice| notice != &first).await;
    let pause = second["elapsedMs"].as_u64().unwrap() - first["elapsedMs"].as_u64().unwrap();
    assert!(second["stage"] == "clone" && pause >= 1_000, "at most one each second: {second}");
    // Those of all sessions read it too.
    let heard = async {
        loop {
            let response = all.message().await.unwrap().unwrap();
            if let Some(Item::Notice(notice)) = response.item
                && notice.kind == WORKSPACE_PROGRESS
            {
                return response.session_id;
            }
        }
    };
    assert_eq!(testkit::within("a notice for all subscribers", heard).await, session);
    let events = &watch.transcript.events;
    assert!(!events.iter().any(|event| event.properties["part"]["state"]["status"] == "completed"));

    testbed.server.release();
    watch.until_tool("completed").await;
    assert_eq!(watch.until_idle().await, "done");
    assert_eq!(watch.transcript.notices.last().unwrap()["stage"], "ready");
    // OpenCode does not know our own events.
    told.push_str(&read_until(&mut opencode, "session.idle").await);
    assert!(told.contains(&session) && !told.contains("\"type\":\"flotilla."), "{told}");
    // It is in no log.
    watch.transcript.assert_gap_free();
    let mut later = Watch::start(api, &session).await;
    assert_eq!(later.until_idle().await, "done");
    assert_eq!(later.transcript.notices, Vec::<Value>::new());
}

#[tokio::test]
async fn a_subscriber_reads_how_much_of_a_clone_has_arrived() {
    if is_without_notices() {
        return;
    }
    let testbed = Testbed::start().await;
    std::fs::write(testbed.app.path().join("large"), noise(400_000)).unwrap();
    testbed.app.git(&["add", "--all"]);
    testbed.app.git(&["commit", "--quiet", "--message=large"]);
    testbed.server.push("acme/app.git", &testbed.app);
    // In the midst of the pack.
    testbed.server.fail("app.git/git-upload-pack", GitFault::Hold(100_000));
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let mut watch = Watch::start(api, &session).await;
    prompt(&testbed, &session).await;
    let has_arrived = |notice: &Value| notice["done"].as_u64().is_some_and(|bytes| bytes > 0);
    let notice = watch.until_notice(has_arrived).await;
    assert!(notice["stage"] == "clone" && notice["unit"] == "bytes", "{notice}");
    assert!(notice["done"].as_u64().unwrap() <= 100_000 && notice["total"].is_null(), "{notice}");
    testbed.server.release();
    assert_eq!(watch.until_idle().await, "done");
}

#[tokio::test]
async fn a_subscriber_reads_how_much_of_git_lfs_is_there() {
    if is_without_notices() {
        return;
    }
    let testbed = Testbed::start().await;
    let pointer = testbed.server.store_lfs("acme/app.git", CONTENT);
    testbed.commit_lfs(&[("large.bin", &pointer)]);
    let oid = pointer.split("sha256:").nth(1).unwrap().split('\n').next().unwrap();
    testbed.server.fail(oid, GitFault::Hold(0));
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let mut watch = Watch::start(api, &session).await;
    prompt(&testbed, &session).await;
    let notice = watch.until_notice(|notice| notice["total"] == CONTENT.len()).await;
    assert!(notice["stage"] == "lfs" && notice["done"] == 0 && notice["unit"] == "bytes", "{notice}");
    testbed.server.release();
    assert_eq!(watch.until_idle().await, "done");
    assert_eq!(watch.transcript.notices.last().unwrap()["stage"], "ready");
}

#[tokio::test]
async fn a_subscriber_reads_how_much_of_the_submodules_has_arrived() {
    if is_without_notices() {
        return;
    }
    let testbed = Testbed::start().await;
    let leaf = repository(&[("large", &noise(400_000))]);
    testbed.server.push("acme/leaf.git", &leaf);
    link_submodule(&testbed.app, "../leaf.git", "vendor/leaf", &leaf.commit);
    testbed.app.git(&["commit", "--quiet", "--message=submodule"]);
    testbed.server.push("acme/app.git", &testbed.app);
    // In the midst of the pack.
    testbed.server.fail("leaf.git/git-upload-pack", GitFault::Hold(100_000));
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let mut watch = Watch::start(api, &session).await;
    prompt(&testbed, &session).await;
    let has_arrived =
        |notice: &Value| notice["stage"] == "submodules" && notice["done"].as_u64().is_some_and(|it| it > 0);
    let notice = watch.until_notice(has_arrived).await;
    assert!(notice["done"].as_u64().unwrap() <= 100_000 && notice["unit"] == "bytes", "{notice}");
    assert!(notice["total"].is_null(), "{notice}");
    testbed.server.release();
    assert_eq!(watch.until_idle().await, "done");
    assert_eq!(watch.transcript.notices.last().unwrap()["stage"], "ready");
}
