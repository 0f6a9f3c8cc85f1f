//! Live-only notices: commands for TUI clients, and requests to reread something.

use super::{client::Client, events::Events, store_settings};
use e2e::Stack;
use futures::future::join;
use reqwest::Method;
use rpc::v1;
use serde_json::{Value, json};
use std::time::Duration;

/// Time in which a gateway polls the versions of workers more than twice.
const LOOKED: Duration = Duration::from_secs(7);
/// Shortest time between two changes of the version, so that the gateway sees each of them.
const UPGRADES: usize = 5;

/// Creates another key of the same tenant, with the same name.
async fn key_of_colleague(stack: &Stack) -> String {
    let request = v1::CreateKeyRequest {
        tenant_id: stack.api.tenant_id.clone(),
        name: "test".to_owned(),
        role: v1::KeyRole::Admin.into(),
    };
    stack.operator().tenants().create_key(request).await.unwrap().into_inner().secret
}

#[tokio::test]
async fn tui_clients_of_a_directory_receive_commands_of_programs() {
    if e2e::is_left_out(&["nats"], "live-only notices come through NATS only") {
        return;
    }
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let elsewhere = Client { directory: "/home/me/other".to_owned(), ..client.clone() };
    let stranger = Client { key: stack.other_tenant().await.key, ..client.clone() };
    // A command without a receiver succeeds as well.
    client.post("/tui/submit-prompt", Value::Null).await;
    // The first session in a directory is announced with a toast.
    for client in [&client, &elsewhere, &stranger] {
        client.session(json!({})).await;
    }
    let mut own = Events::of(&client, "/event", "").await;
    let mut all = Events::of(&client, "/global/event", "").await;
    // A colleague in a directory of the same name does not receive the text that this user typed.
    let colleague = Client { key: key_of_colleague(&stack).await, ..client.clone() };
    let mut others = [
        Events::of(&elsewhere, "/event", "").await,
        Events::of(&stranger, "/global/event", "").await,
        Events::of(&colleague, "/global/event", "").await,
    ];
    let session = client.session(json!({})).await;
    let toast = json!({"title": "CI", "message": "red", "variant": "error", "duration": 5000});
    let published =
        json!({"type": "tui.toast.show", "properties": {"message": "green", "variant": "success"}});
    for (path, body, kind, properties) in [
        ("append-prompt", json!({"text": "@src/a.rs "}), "tui.prompt.append", json!({"text": "@src/a.rs "})),
        (
            "execute-command",
            json!({"command": "agent.cycle"}),
            "tui.command.execute",
            json!({"command": "agent.cycle"}),
        ),
        (
            "execute-command",
            json!({"command": "session_new"}),
            "tui.command.execute",
            json!({"command": "session.new"}),
        ),
        ("submit-prompt", Value::Null, "tui.command.execute", json!({"command": "prompt.submit"})),
        ("clear-prompt", Value::Null, "tui.command.execute", json!({"command": "prompt.clear"})),
        ("open-help", Value::Null, "tui.command.execute", json!({"command": "help.show"})),
        ("open-sessions", Value::Null, "tui.command.execute", json!({"command": "session.list"})),
        ("open-themes", Value::Null, "tui.command.execute", json!({"command": "theme.switch"})),
        ("open-models", Value::Null, "tui.command.execute", json!({"command": "model.list"})),
        ("show-toast", toast.clone(), "tui.toast.show", toast),
        (
            "select-session",
            json!({"sessionID": session}),
            "tui.session.select",
            json!({"sessionID": session}),
        ),
        ("publish", published.clone(), "tui.toast.show", published["properties"].clone()),
    ] {
        assert_eq!(client.post(&format!("/tui/{path}"), body).await, true);
        let is_it = |event: &Value| event["type"].as_str().unwrap().starts_with("tui.");
        let (one, other) = join(own.until(is_it), all.until(is_it)).await;
        assert_eq!((&one["type"], &one["properties"]), (&json!(kind), &properties), "{path}");
        assert_eq!(one, other, "{path}");
    }
    for (events, whose) in others.iter_mut().zip([&elsewhere, &stranger, &colleague]) {
        let last = whose.session(json!({"title": "the end"})).await;
        events.until_session("session.created", &last).await;
        let kinds = events.kinds();
        assert!(!kinds.iter().any(|kind| kind.starts_with("tui.")), "{kinds:?}");
    }
}

#[tokio::test]
async fn a_client_can_poll_for_commands() {
    if e2e::is_left_out(&["nats"], "live-only notices come through NATS only") {
        return;
    }
    let stack = Stack::gateway_alone().await;
    let client = Client::new(&stack, "/home/me/project");
    let elsewhere = Client { directory: "/home/me/other".to_owned(), ..client.clone() };
    let stranger = Client { key: stack.other_tenant().await.key, ..client.clone() };
    let colleague = Client { key: key_of_colleague(&stack).await, ..client.clone() };
    for (path, body, command) in [
        ("/tui/append-prompt", json!({"text": "a"}), ("/tui/append-prompt", json!({"text": "a"}))),
        ("/tui/clear-prompt", Value::Null, ("/tui/execute-command", json!({"command": "prompt.clear"}))),
    ] {
        let ordering = async {
            // Commands reach only clients that are waiting: repeat until the client waits.
            loop {
                for other in [&elsewhere, &stranger, &colleague] {
                    other.post("/tui/append-prompt", json!({"text": "for somebody else"})).await;
                }
                client.post(path, body.clone()).await;
            }
        };
        let asking = async {
            loop {
                let next = client.get("/tui/control/next").await;
                // A command of the previous round may arrive late.
                if next["path"] == command.0 {
                    return next;
                }
            }
        };
        let next = tokio::select! {
            next = asking => next,
            () = ordering => unreachable!(),
        };
        assert_eq!((&next["path"], &next["body"]), (&json!(command.0), &command.1));
        assert_eq!(client.post("/tui/control/response", json!({"done": true})).await, true);
    }
    let half = client.send(Method::POST, "/tui/control/response", "{").await;
    assert_eq!((half.status, half.body["name"].as_str()), (400, Some("BadRequest")), "{}", half.body);
}

#[tokio::test]
async fn invalid_tui_commands_are_refused() {
    let stack = Stack::gateway_alone().await;
    let client = Client::new(&stack, "/home/me/project");
    let stranger = Client { key: stack.other_tenant().await.key, ..client.clone() };
    let theirs = stranger.session(json!({})).await;
    for (path, body, status) in [
        ("append-prompt", json!({"text": "x".repeat(64 * 1024)}), 400),
        ("append-prompt", json!({}), 400),
        ("show-toast", json!({"message": "m", "variant": "loud"}), 400),
        ("show-toast", json!({"message": "m", "variant": "info", "duration": 0}), 400),
        ("select-session", json!({"sessionID": theirs}), 404),
        ("select-session", json!({"sessionID": "none"}), 400),
        ("publish", json!({"type": "session.deleted", "properties": {}}), 400),
    ] {
        client.expect(status, Method::POST, &format!("/tui/{path}"), body).await;
    }
}

#[tokio::test]
async fn clients_are_told_what_to_reread() {
    if e2e::is_left_out(&["nats"], "live-only notices come through NATS only") {
        return;
    }
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let elsewhere = Client { directory: "/home/me/new".to_owned(), ..client.clone() };
    let everywhere = Client { directory: String::new(), ..client.clone() };
    let stranger = Client { key: stack.other_tenant().await.key, ..everywhere.clone() };
    client.post("/project/git/init", Value::Null).await;
    let mut own = Events::of(&client, "/event", "").await;
    let mut all = Events::of(&everywhere, "/global/event", "").await;
    let mut other = Events::of(&stranger, "/global/event", "").await;
    let new_project = elsewhere.post("/project/git/init", Value::Null).await;
    let of_it =
        |event: &Value| event["type"] == "project.updated" && event["properties"]["id"] == new_project["id"];
    assert_eq!(all.until(of_it).await["properties"], new_project);
    assert_eq!(elsewhere.get("/project/current").await, new_project);

    let is_disposed = |event: &Value| event["type"] == "server.instance.disposed";
    store_settings(&stack, &json!({"agent": {"poet": {"description": "writes"}}})).await;
    assert_eq!(own.until(is_disposed).await["properties"]["directory"], client.directory.as_str());
    all.until(|event| event["type"] == "global.disposed").await;
    let agents = client.get("/agent").await;
    assert!(agents.as_array().unwrap().iter().any(|agent| agent["name"] == "poet"), "{agents}");

    // The notice concerns one project only.
    let project_id = new_project["id"].as_str().unwrap().to_owned();
    let request = v1::SetSettingsRequest { project_id, document: "{}".to_owned() };
    stack.api.settings().set_settings(request).await.unwrap();
    assert_eq!(all.until(is_disposed).await["properties"]["directory"], elsewhere.directory.as_str());
    assert_eq!(client.post("/instance/dispose", Value::Null).await, true);
    assert_eq!(own.until(is_disposed).await["properties"]["directory"], client.directory.as_str());
    let disposed = own.seen.iter().filter(|event| is_disposed(event)).count();
    assert_eq!(disposed, 2, "settings of another project are not announced here");
    assert_eq!(client.post("/global/dispose", Value::Null).await, true);
    own.until(is_disposed).await;
    assert_eq!(all.seen.iter().filter(|event| of_it(event)).count(), 1, "a project is created once");
    let path = format!("/project/{}", new_project["id"].as_str().unwrap());
    let project = everywhere.expect(200, Method::PATCH, &path, json!({"name": "New"})).await;
    assert_eq!(all.until(of_it).await["properties"], project);
    let last = stranger.session(json!({})).await;
    other.until_session("session.created", &last).await;
    let foreign = |event: &&Value| event["type"].as_str().unwrap().contains("disposed") || of_it(event);
    assert!(!other.seen.iter().any(|event| foreign(&event)), "{:?}", other.kinds());
}

#[tokio::test]
async fn a_completed_upgrade_of_the_fleet_is_announced() {
    let stack = Stack::gateway_alone().await;
    let client = Client::new(&stack, "/home/me/project");
    let mut events = Events::of(&client, "/event", "").await;
    let mut postgres = testkit::database::connect(&stack.database.migrator_url).await;
    let insert = "insert into worker (incarnation, name, lease_until, draining, slots, version, models)
        values (gen_random_uuid(), 'w', now(), false, 1, '0', '[]')";
    sqlx::raw_sql(insert).execute(&mut postgres).await.unwrap();
    // The first versions may come before the first look.
    for version in 1..=UPGRADES {
        let update = "update worker set version = $1, lease_until = now() + interval '10 seconds'";
        sqlx::query(update).bind(format!("9.0.{version}")).execute(&mut postgres).await.unwrap();
        let is_told = |event: &Value| event["type"] == "installation.updated";
        if let Ok(notice) = tokio::time::timeout(LOOKED, events.until(is_told)).await {
            // A late one may be of the version before.
            let mut versions = (2..=version).map(|version| json!({"version": format!("9.0.{version}")}));
            assert!(versions.any(|properties| notice["properties"] == properties), "{notice}");
            return;
        }
    }
    panic!("the event did not arrive: {:?}", events.kinds());
}
