//! Warm-ups: the mirror of a repository is there before the first prompt, and a flood of sessions brings little.

use super::{HOST, TOKEN, Testbed, URL, mirrors::other_project, session, store};
use e2e::{Options, api::Api, turn::output};
use futures::future::join_all;
use rpc::v1;
use serde_json::json;
use std::sync::Mutex;

/// The hints come over NATS.
fn is_left_out() -> bool {
    e2e::is_left_out(&["nats"], "gateways hint over NATS that a session may be prompted")
}

/// A sandbox fills no mirror if its disk lacks room for a clone and a copy of the largest size, so the workspaces here are small: the tests
/// also run on a machine with a small disk.
async fn testbed() -> Testbed {
    let (worker, sandbox_arguments) = (&["--warm-ups", "4"], &["--disk-bytes", "67108864"]);
    Testbed::with(Options { worker, sandbox_arguments, ..Options::default() }).await
}

/// The doors of all sessions.
fn doors(testbed: &Testbed) -> usize {
    let tenants = std::fs::read_dir(&testbed.stack.broker_settings().egress).unwrap();
    let sessions = tenants.filter_map(|tenant| std::fs::read_dir(tenant.unwrap().path()).ok());
    sessions.map(Iterator::count).sum()
}

#[tokio::test]
async fn a_session_finds_the_mirror_that_was_filled_before_its_prompt() {
    if is_left_out() {
        return;
    }
    let testbed = testbed().await;
    let (api, created) = (&testbed.stack.api, Mutex::new(vec![]));
    // A hint may be lost, so further sessions are created until one was followed.
    testkit::eventually("the mirror is filled", async || {
        let session = testbed.session().await;
        created.lock().unwrap().push(session);
        testbed.generations_of(api).len() == 1
    })
    .await;
    // It has touched no session, and its own door is gone.
    testkit::eventually("the door of the warm-up is removed", async || doors(&testbed) == 0).await;
    let created = created.into_inner().unwrap();
    assert!(created.iter().all(|session| !testbed.stack.workspace(session).exists()));

    let requests = testbed.server.requests().len();
    assert_eq!(output(api, &created[0], "cat file").await.unwrap(), "private\n");
    assert_eq!(testbed.transfers_since(requests), 0);
}

#[tokio::test]
async fn a_flood_of_sessions_warms_up_few_projects_and_no_batch() {
    /// As `WARM_UPS_TENANT_MAX` of the worker.
    const MOST: usize = 8;
    if is_left_out() {
        return;
    }
    let testbed = testbed().await;
    let (api, other) = (&testbed.stack.api, testbed.stack.other_tenant().await);
    store(&other, &json!({format!("https://{HOST}/acme/"): "TOKEN"})).await;
    other.set_secret("TOKEN", TOKEN).await;
    let mut projects = vec![];
    for number in 0..MOST + 2 {
        projects.push(other_project(api, &format!("project-{number}")).await);
    }
    let flood = async || {
        join_all(projects.iter().map(|project| session(project, URL))).await;
    };
    for count in 1..=MOST {
        testkit::eventually("the next mirror is filled", async || {
            flood().await;
            testbed.generations_of(api).len() >= count
        })
        .await;
    }
    flood().await;
    batch(&other_project(&other, "batch").await).await;
    // A worker hears hints in their order: when this one is followed, the earlier ones are over or dropped.
    testkit::eventually("another tenant is warmed up", async || {
        session(&other, URL).await;
        testbed.generations_of(&other).len() == 1
    })
    .await;
    assert_eq!(testbed.generations_of(api).len(), MOST);
}

/// Creates a session of a batch.
async fn batch(api: &Api) {
    let request = v1::CreateSessionRequest {
        project_id: api.project_id.clone(),
        title: "test".to_owned(),
        source: Some(v1::Source {
            from: Some(v1::source::From::GitUrl(URL.to_owned())),
            revision: String::new(),
        }),
        class: v1::SessionClass::Batch.into(),
        ..Default::default()
    };
    api.sessions().create_session(request).await.unwrap();
}
