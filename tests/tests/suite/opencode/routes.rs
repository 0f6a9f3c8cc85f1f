//! Every route with good and with bad input.

mod edits;
mod files;
mod operator;
mod paths;
mod refusals;
mod terminals;
mod v2;

use super::{
    client::{Client, text_prompt},
    contract,
};
use e2e::{Stack, turn::bash};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Routes of OpenCode features that are missing here. Other methods are refused in the same way.
const HALF_HERE: [&str; 4] =
    ["/mcp", "/provider/auth", "/experimental/workspace", "/experimental/workspace/status"];
/// An id that belongs to no session.
const NOBODY: &str = "ses_00000000000000000000000000";

#[tokio::test]
async fn every_route_answers_as_opencode_specifies() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    catalogue(&client).await;
    let session = sessions(&client).await;
    messages(&client, &session).await;
    edits::check(&client, &session).await;
    points(&client, &session).await;
    commands(&client, &session).await;
    requests(&client).await;
    worktrees(&client).await;
    operator::check(&client).await;
    terminals::check(&client).await;
    files::check(&client).await;
    v2::check(&client).await;
    refusals::check(&client).await;
    paths::check(&client).await;
    unknown_sessions(&client, &session).await;
    client.expect(200, Method::DELETE, &format!("/session/{session}"), Value::Null).await;
    client.expect(404, Method::GET, &format!("/session/{session}"), Value::Null).await;

    let listed = client.own().await.listed();
    methods(&client, &listed).await;
    // Streams and TUI commands have separate tests.
    let called = client.called.lock().unwrap().clone();
    let missed: Vec<_> = listed
        .iter()
        .filter(|(_, path)| !path.ends_with("/event") && !path.starts_with("/tui/"))
        .filter(|(method, path)| !called.iter().any(|(by, at)| by == method && contract::fits(path, at)))
        .collect();
    assert!(
        listed.len() > 70 && missed.is_empty(),
        "of {} routes these were not called: {missed:?}",
        listed.len()
    );
}

/// Each route has exactly the methods in its description.
async fn methods(client: &Client, listed: &[(String, String)]) {
    let purge = Method::from_bytes(b"PURGE").unwrap();
    let paths: BTreeSet<&str> = listed.iter().map(|(_, path)| path.as_str()).collect();
    for path in paths.into_iter().filter(|path| !HALF_HERE.contains(path)) {
        let refused = client.request(purge.clone(), &path.replace(['{', '}'], "x")).send().await.unwrap();
        let allowed = refused.headers().get("allow").map_or("", |value| value.to_str().unwrap());
        let allowed: BTreeSet<&str> = allowed.split(',').filter(|method| *method != "HEAD").collect();
        let own = listed.iter().filter(|(_, other)| other == path).map(|(method, _)| method.as_str());
        assert_eq!((refused.status().as_u16(), allowed), (405, own.collect()), "{path}");
        let name = if path.starts_with("/api/") { "_tag" } else { "name" };
        assert_eq!(refused.json::<Value>().await.unwrap()[name], "MethodNotAllowedError", "{path}");
    }
    for (method, path) in [(Method::POST, "/session/ses_1/share"), (Method::POST, "/sync/start")] {
        let refused = client.request(method.clone(), path).send().await.unwrap();
        assert_eq!(refused.status(), 404, "{method} {path}");
        let refused: Value = refused.json().await.unwrap();
        let why = refused["data"]["message"].as_str().unwrap();
        assert!(
            refused["name"] == "NotFoundError" && !why.contains("no such path"),
            "{method} {path}: {why}"
        );
    }
}

async fn catalogue(client: &Client) {
    assert_eq!(client.get("/global/health").await["healthy"], true);
    client.called.lock().unwrap().insert(("GET".to_owned(), "/doc".to_owned()));
    // Ours: OpenCode has no such route.
    let schema = client.request(Method::GET, "/doc/config").send().await.unwrap();
    assert_eq!(schema.json::<Value>().await.unwrap()["title"], ".flotilla/config.yaml");
    client.called.lock().unwrap().insert(("GET".to_owned(), "/doc/config".to_owned()));
    for path in ["/global/config", "/config"] {
        let config = client.get(path).await;
        assert_eq!((&config["model"], &config["share"]), (&json!("chat/demo"), &json!("disabled")), "{path}");
    }
    let providers = client.get("/config/providers").await;
    assert_eq!(providers["default"]["chat"], "demo");
    let all = client.get("/provider").await;
    assert_eq!((&all["all"], all["connected"][0].as_str()), (&providers["providers"], Some("chat")));
    let agents = client.get("/agent").await;
    let agents = agents.as_array().unwrap().iter();
    assert!(agents.into_iter().any(|agent| agent["name"] == "build" && agent["mode"] == "primary"));
    let commands = client.get("/command").await;
    assert!(commands.as_array().unwrap().iter().any(|command| command["name"] == "init"));
    assert_eq!(client.get("/path").await["directory"], client.directory.as_str());
    let future = client.get("/project/current").await["id"].as_str().unwrap().to_owned();
    assert!(!client.get("/project").await.to_string().contains(&client.directory), "reads create nothing");
    let directories = client.get(&format!("/project/{future}/directories")).await;
    assert_eq!(directories[0]["directory"], client.directory.as_str());
    let project = client.post("/project/git/init", Value::Null).await;
    assert_eq!(project["id"], future.as_str(), "clients read the id of their project once");
    assert_eq!(client.get("/project/current").await, project);
    assert_eq!(project["worktree"], client.directory.as_str());
    assert!(client.get("/project").await.as_array().unwrap().contains(&project));
    let id = project["id"].as_str().unwrap();
    assert_eq!(
        client.get(&format!("/project/{id}/directories")).await[0]["directory"],
        client.directory.as_str()
    );
    let at = format!("/project/{id}");
    assert_eq!(client.expect(200, Method::PATCH, &at, json!({})).await, project, "nothing is changed");
    let icon = json!({"color": "mint"});
    let shop = client.expect(200, Method::PATCH, &at, json!({"name": "Shop", "icon": icon})).await;
    assert_eq!(
        (&shop["name"], &shop["icon"], &shop["worktree"]),
        (&json!("Shop"), &icon, &project["worktree"])
    );
    let named =
        client.expect(200, Method::PATCH, &at, json!({"name": "", "commands": {"start": "make"}})).await;
    assert_eq!((&named["name"], &named["icon"]), (&project["name"], &icon));
    assert_eq!(client.get("/project/current").await, named);
    let most = "x".repeat(20 * 1024);
    let drawn = client.expect(200, Method::PATCH, &at, json!({"icon": {"url": most}})).await;
    assert_eq!((&drawn["icon"]["color"], &drawn["icon"]["url"]), (&json!("mint"), &json!(most)));
    for more in [json!({"icon": {"override": most}}), json!({"name": "\0"})] {
        refused(client, Method::PATCH, &at, &more.to_string()).await;
    }
    let none = client.expect(404, Method::PATCH, "/project/prj_none", json!({})).await;
    assert_eq!(none["_tag"], "ProjectNotFoundError");
    for path in ["/lsp", "/formatter", "/experimental/workspace", "/experimental/workspace/status"] {
        assert_eq!(client.get(path).await, json!([]), "{path}");
    }
    for path in ["/mcp", "/provider/auth", "/experimental/resource"] {
        assert_eq!(client.get(path).await, json!({}), "{path}");
    }
    assert_eq!(client.get("/vcs").await, json!({"branch": "main"}), "of files that start empty");
    assert_eq!(client.get("/experimental/capabilities").await["backgroundSubagents"], false);
    assert_eq!(client.get("/experimental/console").await["switchableOrgCount"], 0);
    let entry = json!({"service": "tui", "level": "info", "message": "hello"});
    assert_eq!(client.post("/log", entry).await, true);
    refused(client, Method::POST, "/log", "{").await;
}

async fn sessions(client: &Client) -> String {
    let new_session = client.post("/session", Value::Null).await;
    assert_eq!(
        (new_session["directory"].as_str(), &new_session["version"]),
        (Some(client.directory.as_str()), &new_session["version"])
    );
    let rule = json!({"permission": "bash", "pattern": "rm *", "action": "deny"});
    let model = json!({"providerID": "claude", "id": "demo"});
    let new = json!({"title": "Über: a test!", "agent": "plan", "model": model, "permission": [rule]});
    let session = client.post("/session", new).await;
    assert_eq!(
        (&session["title"], &session["agent"], &session["model"]),
        (&json!("Über: a test!"), &json!("plan"), &model)
    );
    assert_eq!((&session["permission"], new_session.get("permission")), (&json!([rule]), None));
    assert!(session["slug"].as_str().unwrap().starts_with("über-a-test-"), "{session}");
    let id = session["id"].as_str().unwrap().to_owned();
    let at = format!("/session/{id}");
    assert_eq!(client.get(&at).await, session);
    for bad in ["{", "[]", r#"{"permission":[{}]}"#, r#"{"model":7}"#] {
        refused(client, Method::POST, "/session", bad).await;
    }
    refused(
        client,
        Method::POST,
        "/session",
        r#"{"permission":[{"permission":"a","pattern":"*","action":"maybe"}]}"#,
    )
    .await;

    refused(client, Method::POST, "/session", r#"{"parentID":"ses_01234567890123456789abcdef"}"#).await;
    let titles = async |query: &str| {
        let listed = client.get(&format!("/session{query}")).await;
        listed.as_array().unwrap().iter().map(|it| it["title"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(titles("?search=TEST&roots=true&limit=5&start=0").await, ["Über: a test!"]);
    assert_eq!(titles("").await.len(), 2);
    assert_eq!(titles("?start=99999999999999").await.len(), 0);
    for bad in
        ["?start=yesterday", "?limit=many", "?limit=1&limit=2", &format!("?directory={}", "x".repeat(400))]
    {
        plainly_refused(client, &format!("/session{bad}")).await;
    }
    let everywhere = Client { directory: String::new(), ..client.clone() };
    let all = everywhere.get("/experimental/session?search=TEST&roots=true&start=0").await;
    assert_eq!(
        (&all[0]["id"], &all[0]["project"]["worktree"]),
        (&session["id"], &json!(client.directory)),
        "{all}"
    );
    let first = everywhere.send(Method::GET, "/experimental/session?limit=1", "").await;
    let next = first.headers["x-next-cursor"].to_str().unwrap();
    let second = everywhere.get(&format!("/experimental/session?limit=1&cursor={next}")).await;
    assert_ne!(first.body[0]["id"], second[0]["id"]);
    let elsewhere = Client { directory: "/home/me/nowhere".to_owned(), ..client.clone() };
    assert_eq!(elsewhere.get("/experimental/session").await, json!([]));
    plainly_refused(client, "/experimental/session?cursor=x").await;
    let renamed = client.expect(200, Method::PATCH, &at, json!({"title": "Renamed"})).await;
    assert_eq!(renamed["title"], "Renamed");
    let archived =
        client.expect(200, Method::PATCH, &at, json!({"time": {"archived": 1_700_000_000_000_u64}})).await;
    assert!(archived["time"]["archived"].is_number(), "{archived}");
    refused(client, Method::PATCH, &at, r#"{"title":7}"#).await;
    for path in ["children", "todo", "diff"] {
        assert_eq!(client.get(&format!("{at}/{path}")).await, json!([]), "{path}");
    }
    assert_eq!(client.get("/session/status").await, json!({}));
    id
}

async fn messages(client: &Client, session: &str) {
    let at = format!("/session/{session}/message");
    let answer = client.prompt(session, "@text One.").await;
    assert_eq!(answer["info"]["role"], "assistant");
    assert_eq!((&answer["parts"][1]["text"], &answer["info"]["finish"]), (&json!("One."), &json!("stop")));
    client.prompt(session, "@text Two.").await;
    let id = answer["info"]["id"].as_str().unwrap();
    assert_eq!(client.get(&format!("{at}/{id}")).await, answer);
    let all = client.get(&at).await;
    assert_eq!(all.as_array().unwrap().len(), 4);
    let newest = client.send(Method::GET, &format!("{at}?limit=3"), "").await;
    assert_eq!(newest.body.as_array().unwrap()[..], all.as_array().unwrap()[1..]);
    let cursor = newest.headers["x-next-cursor"].to_str().unwrap();
    assert!(newest.headers["link"].to_str().unwrap().contains(cursor));
    let oldest = client.get(&format!("{at}?limit=3&before={cursor}")).await;
    assert_eq!(oldest.as_array().unwrap()[..], all.as_array().unwrap()[..1]);
    for bad in ["?before=x", "?limit=many", "?limit=-1"] {
        refused(client, Method::GET, &format!("{at}{bad}"), "").await;
    }
    for bad in ["", "{}", r#"{"parts":[{"type":"cake"}]}"#, r#"{"parts":7}"#, r#"{"parts":[]}"#] {
        refused(client, Method::POST, &at, bad).await;
        refused(client, Method::POST, &format!("/session/{session}/prompt_async"), bad).await;
    }
    // OpenCode declares an assistant message here, but returns the prompt.
    let silent = json!({"noReply": true, "parts": [{"type": "text", "text": "only so you know"}]});
    let stored = client.request(Method::POST, &at).json(&silent).send().await.unwrap();
    assert_eq!(stored.json::<Value>().await.unwrap()["info"]["role"], "user");
    client.expect(404, Method::GET, &format!("{at}/msg_none"), Value::Null).await;
}

async fn points(client: &Client, session: &str) {
    let at = format!("/session/{session}");
    let talk = client.get(&format!("{at}/message")).await;
    let second = &talk[2]["info"]["id"];
    let fork = client.post(&format!("{at}/fork"), json!({"messageID": second})).await;
    let forked = client.get(&format!("/session/{}/message", fork["id"].as_str().unwrap())).await;
    assert_eq!(forked.as_array().unwrap().len(), 2, "the messages before the given one");
    client.post(&format!("{at}/fork"), json!({})).await;
    client.expect(404, Method::POST, &format!("{at}/fork"), json!({"messageID": "msg_none"})).await;
    refused(client, Method::POST, &format!("{at}/fork"), "[").await;
    assert_eq!(client.get(&format!("{at}/diff?messageID={}", second.as_str().unwrap())).await, json!([]));
    let reverted = client.post(&format!("{at}/revert"), json!({"messageID": second})).await;
    assert_eq!(reverted["revert"]["messageID"], *second);
    client.expect(404, Method::POST, &format!("{at}/revert"), json!({"messageID": "msg_none"})).await;
    refused(client, Method::POST, &format!("{at}/revert"), "{}").await;
    let whole = client.post(&format!("{at}/unrevert"), Value::Null).await;
    assert!(whole.get("revert").is_none(), "{whole}");
    assert_eq!(client.post(&format!("{at}/abort"), Value::Null).await, true);
}

async fn commands(client: &Client, session: &str) {
    let at = format!("/session/{session}");
    let answer =
        client.post(&format!("{at}/command"), json!({"command": "init", "arguments": "@text done"})).await;
    assert_eq!(answer["info"]["role"], "assistant");
    refused(client, Method::POST, &format!("{at}/command"), "{}").await;
    refused(client, Method::POST, &format!("{at}/command"), r#"{"command":"nope","arguments":""}"#).await;
    let answer = client.post(&format!("{at}/shell"), json!({"agent": "build", "command": "echo out"})).await;
    assert_eq!(answer["parts"][0]["state"]["output"], "out\n", "{answer}");
    refused(client, Method::POST, &format!("{at}/shell"), "{}").await;
    let model = json!({"providerID": "chat", "modelID": "demo"});
    let init =
        json!({"providerID": "chat", "modelID": "demo", "messageID": "msg_01234567890123456789abcdef"});
    assert_eq!(client.post(&format!("{at}/init"), init).await, true);
    assert_eq!(client.post(&format!("{at}/summarize"), model).await, true);
    for path in ["init", "summarize"] {
        refused(client, Method::POST, &format!("{at}/{path}"), "{}").await;
    }
}

async fn requests(client: &Client) {
    let rule = json!({"permission": "bash", "pattern": "*", "action": "ask"});
    let session = client.session(json!({"permission": [rule]})).await;
    let open = async |path: &str, prompt: &str| {
        client.prompt_async(&session, prompt).await;
        let mut events = super::events::Events::of(client, "/event", "").await;
        events.until_session(&format!("{}.asked", &path[1..]), &session).await;
        let busy = client.get("/session/status").await;
        assert_eq!(busy[&session]["type"], "busy");
        let listed = client.get(path).await;
        assert_eq!(listed.as_array().unwrap().len(), 1);
        (listed[0]["id"].as_str().unwrap().to_owned(), events)
    };
    let call = format!("{}\n@text over", bash("true"));
    let (id, mut events) = open("/permission", &call).await;
    let reply = format!("/permission/{id}/reply");
    refused(client, Method::POST, &reply, r#"{"reply":"maybe"}"#).await;
    refused(client, Method::POST, &reply, "{}").await;
    let shell = json!({"agent": "build", "command": "true"});
    let busy = client.expect(409, Method::POST, &format!("/session/{session}/shell"), shell).await;
    assert_eq!(busy["sessionID"], session.as_str());
    assert_eq!(client.post(&reply, json!({"reply": "once"})).await, true);
    events.until_session("session.idle", &session).await;
    let none = client.expect(404, Method::POST, "/permission/per_none/reply", json!({"reply": "once"})).await;
    assert_eq!((&none["_tag"], &none["requestID"]), (&json!("PermissionNotFoundError"), &json!("per_none")));
    client.expect(404, Method::POST, &reply, json!({"reply": "once"})).await;

    let (id, mut events) = open("/permission", &call).await;
    let old = format!("/session/{session}/permissions");
    refused(client, Method::POST, &format!("{old}/{id}"), r#"{"response":"maybe"}"#).await;
    client.expect(404, Method::POST, &format!("{old}/per_none"), json!({"response": "once"})).await;
    let other = client.session(json!({})).await;
    for elsewhere in [other.as_str(), NOBODY, "nonsense"] {
        let at = format!("/session/{elsewhere}/permissions/{id}");
        let none = client.expect(404, Method::POST, &at, json!({"response": "once"})).await;
        assert_eq!(none["requestID"], id.as_str(), "it belongs to another session than {elsewhere}");
    }
    assert_eq!(client.post(&format!("{old}/{id}"), json!({"response": "reject"})).await, true);
    events.until_session("session.idle", &session).await;

    let options = json!([{"label": "Red", "description": "a colour"}]);
    let ask = json!({"questions": [{"question": "Which?", "header": "Colour", "options": options}]});
    let prompt = format!("@tool question {ask}\n@text thanks");
    let (id, mut events) = open("/question", &prompt).await;
    refused(client, Method::POST, &format!("/question/{id}/reply"), "{}").await;
    assert_eq!(client.post(&format!("/question/{id}/reply"), json!({"answers": [["Red"]]})).await, true);
    events.until_session("session.idle", &session).await;
    let (id, mut events) = open("/question", &prompt).await;
    assert_eq!(client.post(&format!("/question/{id}/reject"), Value::Null).await, true);
    events.until_session("session.idle", &session).await;
    for (path, body) in [("reply", json!({"answers": [["Red"]]})), ("reject", Value::Null)] {
        let none = client.expect(404, Method::POST, &format!("/question/que_none/{path}"), body).await;
        assert_eq!(
            (&none["_tag"], &none["requestID"]),
            (&json!("QuestionNotFoundError"), &json!("que_none"))
        );
    }
}

/// Worktrees of a project without a repository: see `opencode::worktrees` for the others.
async fn worktrees(client: &Client) {
    let (path, reset) = ("/experimental/worktree", "/experimental/worktree/reset");
    assert_eq!(client.get(path).await, json!([]));
    for bad in ["", "{}", r#"{"name":7}"#, "["] {
        refused(client, Method::POST, path, bad).await;
    }
    for bad in ["", "{}", r#"{"directory":"/home/me/none"}"#, r#"{"directory":"\u0000"}"#] {
        refused(client, Method::DELETE, path, bad).await;
        refused(client, Method::POST, reset, bad).await;
    }
}

/// A missing resource and another tenant's resource give the same answer.
async fn unknown_sessions(client: &Client, session: &str) {
    for nobody in [NOBODY, "ses_nope", "nonsense"] {
        for (method, path, body) in [
            (Method::GET, "", Value::Null),
            (Method::PATCH, "", json!({"title": "x"})),
            (Method::DELETE, "", Value::Null),
            (Method::GET, "/children", Value::Null),
            (Method::GET, "/todo", Value::Null),
            (Method::GET, "/message", Value::Null),
            (Method::POST, "/message", text_prompt("x")),
            (Method::POST, "/prompt_async", text_prompt("x")),
            (Method::POST, "/fork", json!({})),
            (Method::POST, "/revert", json!({"messageID": "msg_none"})),
            (Method::POST, "/unrevert", Value::Null),
            (Method::POST, "/command", json!({"command": "init", "arguments": ""})),
            (Method::POST, "/shell", json!({"agent": "build", "command": "true"})),
        ] {
            let none = client.expect(404, method, &format!("/session/{nobody}{path}"), body).await;
            assert_eq!(none["name"], "NotFoundError", "{path}");
        }
        assert_eq!(client.post(&format!("/session/{nobody}/abort"), Value::Null).await, true);
    }
    let other = client.request(Method::GET, &format!("/session/{session}/none")).send().await.unwrap();
    assert_eq!(other.status(), 404);
    assert_eq!(other.json::<Value>().await.unwrap()["name"], "NotFoundError", "not a web page");
    let stranger = Client { key: "flk_nobody".to_owned(), ..client.clone() };
    let refused = stranger.send(Method::GET, "/config", "").await;
    assert_eq!((refused.status, &refused.body), (401, &Value::Null));
    assert_eq!(refused.headers["www-authenticate"], "Basic realm=\"Secure Area\"");
}

/// Invalid input gets an error message in a shape that the operation declares.
async fn refused(client: &Client, method: Method, path: &str, body: &str) {
    let answer = client.send(method.clone(), path, body).await;
    let call = format!("{method} {path} {body}: {}", answer.body);
    assert_eq!((answer.status, answer.body["_tag"].as_str()), (400, Some("InvalidRequestError")), "{call}");
    assert!(!answer.body["message"].as_str().unwrap().is_empty(), "{call}");
}

/// As [`refused`], for operations where OpenCode declares the older shape.
async fn plainly_refused(client: &Client, path: &str) {
    let answer = client.expect(400, Method::GET, path, Value::Null).await;
    assert_eq!((&answer["name"], &answer["data"]["kind"]), (&json!("BadRequest"), &json!("Query")), "{path}");
    assert!(!answer["data"]["message"].as_str().unwrap().is_empty(), "{path}: {answer}");
}
