//! Setups of the settings on top of an image: from the worker through the door of the session to a layer that the sessions of a project share.

use super::{BASE, is_supported, layer};
use crate::egress::{HOST, ask_door, get, outside};
use e2e::{
    Options, Stack,
    api::{Api, code},
    settings::Outside,
    turn::{bash, output, run},
};
use rpc::v1::{self, EnvironmentState};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testkit::registry::Registry;

struct Site {
    _registry: Registry,
    stack: Stack,
    reference: String,
}

impl Site {
    async fn start() -> Self {
        let registry = Registry::start().await;
        let hosts = vec![format!("{HOST}={}", outside().await)];
        let outside = Outside { registries: vec![registry.host.clone()], hosts, ..Outside::default() };
        let stack = Stack::with(Options { broker: true, outside, ..Options::default() }).await;
        registry.push_image("acme/dev", &[&BASE, &layer("name", "of the image")]);
        let reference = format!("{}/acme/dev:latest", registry.host);
        Self { _registry: registry, stack, reference }
    }

    /// Whether this machine can join layers.
    async fn is_supported(&self) -> bool {
        let other = self.stack.other_tenant().await;
        other.set_environment("", &json!({"image": self.reference})).await;
        is_supported(&output(&other, &other.session(None).await, "true").await)
    }

    /// Stores settings with the image, for the tenant.
    async fn choose(&self, more: Value) {
        let mut environment = json!({"image": self.reference});
        environment.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.stack.api.set_environment("", &environment).await;
    }
}

async fn environments(api: &Api) -> Vec<v1::Environment> {
    let request = v1::ListEnvironmentsRequest { project_id: api.project_id.clone() };
    api.environments().list_environments(request).await.unwrap().into_inner().environments
}

async fn log(api: &Api, key: &str) -> String {
    let request = v1::GetEnvironmentLogRequest { key: key.to_owned() };
    let log = api.environments().get_environment_log(request).await.unwrap().into_inner().log;
    String::from_utf8(log).unwrap()
}

/// Commands that ask the proxy for a page.
fn fetch(to: &str) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/3128; printf '{}\\r\\n\\r\\n' >&3; cat <&3 {to}; echo", get(HOST))
}

#[tokio::test]
async fn the_sessions_of_a_project_share_a_setup_that_has_a_network_of_its_own() {
    let mut site = Site::start().await;
    let setup = format!("{} > /srv/id; echo $RANDOM$RANDOM >> /srv/id; echo CI=$CI", fetch("> /srv/page"));
    site.choose(json!({"setup": setup, "env": {"CI": "1"}, "network": {"setup": [HOST]}})).await;
    let api = &site.stack.api;
    let session = api.session(None).await;
    let look = "cat /srv/id /srv/page /srv/name; echo; echo CI=$CI $UID";
    let first = output(api, &session, look).await;
    if !is_supported(&first) {
        return;
    }
    let first = first.unwrap();
    assert!(first.contains("200 OK") && first.contains("GET /simple/"), "{first}");
    assert!(first.ends_with("of the image\nCI=1 1000\n"), "{first}");
    // The session itself reaches nothing.
    let refused = output(api, &session, &fetch("")).await.unwrap();
    assert!(refused.contains("environment.network.allow is not set"), "{refused}");
    let second = api.session(None).await;
    assert_eq!(output(api, &second, look).await.unwrap(), first, "it was not built again");
    let built = environments(api).await;
    assert_eq!((built.len(), built[0].state()), (1, EnvironmentState::Ready), "{built:?}");
    assert_eq!(log(api, &built[0].key).await, "CI=1\n");

    // Other settings are another environment; earlier sessions keep theirs.
    site.choose(json!({"setup": setup, "env": {"CI": "2"}, "network": {"setup": [HOST]}})).await;
    let third = api.session(None).await;
    let changed = output(api, &third, look).await.unwrap();
    assert!(changed.contains("CI=2") && changed != first, "{changed}");
    assert_eq!(output(api, &session, look).await.unwrap(), first);
    let built: BTreeSet<String> = environments(api).await.into_iter().map(|built| built.key).collect();
    assert_eq!(built.len(), 2);

    // Another tenant sees none of them.
    let other = site.stack.other_tenant().await;
    assert_eq!(environments(&other).await, []);
    for key in &built {
        let (read, remove) = (
            v1::GetEnvironmentLogRequest { key: key.clone() },
            v1::RemoveEnvironmentRequest { key: key.clone() },
        );
        let read = other.environments().get_environment_log(read).await.unwrap_err();
        assert_eq!(code(&read), "environment_unknown");
        let removed = other.environments().remove_environment(remove.clone()).await.unwrap_err();
        assert_eq!(code(&removed), "environment_unknown");
        let used = api.environments().remove_environment(remove).await.unwrap_err();
        assert_eq!(code(&used), "environment_in_use");
    }
    // The log of the session shows what the setup reached.
    site.stack.stop_broker().await;
    let request = v1::ListEgressRequest { session_id: session, page: None };
    let accesses = site.stack.api.sessions().list_egress(request).await.unwrap().into_inner().accesses;
    let results: BTreeSet<&str> = accesses.iter().map(|access| access.code.as_str()).collect();
    assert_eq!(results, ["", "egress_host_not_allowed"].into(), "{accesses:?}");
}

#[tokio::test]
async fn a_failed_setup_ends_the_turn_with_its_last_lines_and_the_next_turn_tries_again() {
    let site = Site::start().await;
    let api = &site.stack.api;
    site.choose(json!({"setup": format!("{}; echo 'no such package' >&2; exit 3", fetch(""))})).await;
    let session = api.session(None).await;
    let failed = output(api, &session, "true").await;
    if !is_supported(&failed) {
        return;
    }
    let failed = failed.unwrap_err();
    assert!(failed.contains("setup_failed") && failed.contains("exit code 3"), "{failed}");
    // Without a list, a setup reaches no host, and reads why.
    assert!(failed.contains("environment.network.setup does not list it"), "{failed}");
    assert!(failed.contains("no such package"), "{failed}");
    let built = environments(api).await;
    assert_eq!((built[0].state(), built[0].code.as_str()), (EnvironmentState::Failed, "setup_failed"));
    assert!(log(api, &built[0].key).await.ends_with("no such package\n"));
    site.choose(json!({"setup": "echo fine > /srv/state"})).await;
    assert_eq!(output(api, &session, "cat /srv/state").await.unwrap(), "fine\n");
    // A person's terminal before the first prompt would have neither image nor setup.
    let fresh = api.session(None).await;
    let request = v1::CreatePtyRequest { session_id: fresh, ..Default::default() };
    let refused = api.ptys().create_pty(request).await.unwrap_err();
    assert_eq!(code(&refused), "workspace_missing");
}

#[tokio::test]
async fn the_door_of_a_session_is_closed_when_its_setup_is_over() {
    let site = Site::start().await;
    let repository = testkit::git::repository(&[("README.md", "one\n")]);
    site.choose(json!({"setup": format!("{}; false", fetch("")), "network": {"setup": [HOST]}})).await;
    let session = site.stack.session_on(&repository).await;
    let (outcome, transcript) =
        run(&site.stack.api, &session, &format!("{}\n@text over", bash("true"))).await;
    if !is_supported(&Err(transcript.error().map(ToString::to_string).unwrap_or_default())) {
        return;
    }
    assert_ne!(outcome, "done");
    assert!(transcript.error().unwrap().to_string().contains("200 OK"), "the setup reached it");
    let closed = ask_door(&site.stack, &session).await;
    assert!(
        closed.contains(
            "environment.network.allow (which counts from the first tool call of a turn) does not list it"
        ),
        "{closed}"
    );
    site.choose(json!({"setup": fetch(""), "network": {"setup": [HOST]}})).await;
    assert_eq!(run(&site.stack.api, &session, "@text nothing to do").await.0, "done");
    let closed = ask_door(&site.stack, &session).await;
    assert!(
        closed.contains(
            "environment.network.allow (which counts from the first tool call of a turn) does not list it"
        ),
        "{closed}"
    );
}

#[tokio::test]
async fn a_build_outlives_the_worker_that_asked_for_it() {
    let mut site = Site::start().await;
    // Nothing but bash waits here, for a file that the test makes in the door of the session.
    let wait = "until [ -e /run/egress/go ]; do read -rt 0.05 <> <(:) || :; done";
    site.choose(json!({"setup": format!("echo begun; {wait}; echo $RANDOM > /srv/id")})).await;
    if !site.is_supported().await {
        return;
    }
    let session = site.stack.api.session(None).await;
    let prompt = format!("{}\n@text over", bash("cat /srv/id"));
    site.stack.api.prompt(&session, &prompt).await.unwrap();
    let api = site.stack.api.clone();
    let begun = async || match environments(&api).await.first() {
        Some(built) => log(&api, &built.key).await.contains("begun"),
        None => false,
    };
    testkit::eventually("the setup begins", begun).await;
    site.stack.crash_worker(0);
    site.stack.add_worker().await;
    let tenants = std::fs::read_dir(&site.stack.broker_settings().egress).unwrap();
    let mut doors = tenants.map(|tenant| tenant.unwrap().path().join(&session).join("door"));
    let door = doors.find(|door| door.is_dir()).unwrap();
    std::fs::write(door.join("go"), "").unwrap();
    let done = async || api.tool_calls(&session).await.pop().is_some_and(|call| !call.result.is_empty());
    testkit::eventually("the tool runs", done).await;
    let built = environments(&api).await;
    assert_eq!((built.len(), log(&api, &built[0].key).await.matches("begun").count()), (1, 1));
}
