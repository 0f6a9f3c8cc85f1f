//! Titles of sessions, from a small model or from a person, and the archive.

use domain::{conversation::title::is_default, limits};
use e2e::{
    Stack,
    api::{Api, assert_refused},
    turn::{Event, Watch, bash, run, task},
};
use model_script::journal::Request;
use rpc::v1;
use serde_json::Value;
use std::time::{Duration, Instant};
use tonic::Code;

/// Creates a session without a title.
async fn create_untitled(api: &Api, source: Option<v1::Source>) -> String {
    let request =
        v1::CreateSessionRequest { project_id: api.project_id.clone(), source, ..Default::default() };
    let session = api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap();
    assert!(is_default(&session.title), "{}", session.title);
    session.id
}

/// Returns the model requests for a title of a session.
fn title_requests(stack: &Stack, session: &str) -> Vec<Request> {
    let is_its = |request: &Request| {
        request.headers.get("x-session-id").is_some_and(|id| id == session)
            && request.body.to_string().contains("Generate a title for this conversation:")
    };
    stack.model.journal.requests().into_iter().filter(is_its).collect()
}

async fn title(api: &Api, session: &str) -> String {
    api.get(session).await.title
}

async fn update(api: &Api, session: &str, fields: &[&str], title: &str, archived: bool) -> v1::Session {
    let paths = fields.iter().map(ToString::to_string).collect();
    let request = v1::UpdateSessionRequest {
        session_id: session.to_owned(),
        update_mask: Some(prost_types::FieldMask { paths }),
        title: title.to_owned(),
        archived,
        ..Default::default()
    };
    api.sessions().update_session(request).await.unwrap().into_inner().session.unwrap()
}

/// Returns the ids of the tenant's sessions.
async fn listed(api: &Api, include_archived: bool) -> Vec<String> {
    let request = v1::ListSessionsRequest { include_archived, ..Default::default() };
    let sessions = api.sessions().list_sessions(request).await.unwrap().into_inner().sessions;
    sessions.into_iter().map(|session| session.id).collect()
}

fn has_title(event: &Event, title: &str) -> bool {
    event.kind == "session.updated" && event.properties["info"]["title"] == title
}

#[tokio::test]
async fn the_first_prompt_creates_a_title_whose_cost_is_recorded() {
    let stack = Stack::without_sandbox().await;
    let api = &stack.api;
    let session = create_untitled(api, None).await;
    let prompt = "@title @usage input=100 output=7\n@title @text <think>They greet.</think>\n@title @text  A greeting\n\
                  @usage input=10 output=5\n@text Hello";
    let (outcome, transcript) = run(api, &session, prompt).await;
    assert_eq!(outcome, "done");
    let titled = transcript.events.iter().position(|event| has_title(event, "A greeting"));
    assert!(
        titled.is_some_and(|at| at < transcript.events.len() - 1),
        "the title was announced before the end of the turn: {:?}",
        transcript.kinds()
    );
    let state = api.get(&session).await;
    let tokens = state.tokens.unwrap();
    assert_eq!((state.title.as_str(), tokens.input, tokens.output), ("A greeting", 110, 12));
    // The price is 3 and 15 dollars per million tokens.
    assert_eq!(state.cost_usd_picos, 110 * 3_000_000 + 12 * 15_000_000);
    let requests = title_requests(&stack, &session);
    let body = &requests[0].body;
    assert_eq!((requests.len(), body["temperature"].as_f64()), (1, Some(0.5)), "{body}");
    assert_eq!((&body["tools"], body["messages"].as_array().unwrap().len()), (&Value::Null, 2));

    run(api, &session, "@text again").await;
    assert_eq!(
        (title_requests(&stack, &session).len(), title(api, &session).await.as_str()),
        (1, "A greeting")
    );
}

#[tokio::test]
async fn named_sessions_subtasks_and_second_prompts_get_no_title() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let session = stack.session().await;
    run(api, &session, "@title @text Machine\n@text Hello").await;
    assert_eq!((title_requests(&stack, &session).len(), title(api, &session).await.as_str()), (0, "test"));

    let parent = create_untitled(api, None).await;
    run(api, &parent, &format!("Fix it\n{}\n@text over", task("@text the child is done"))).await;
    let child = api.children(&parent).await.remove(0);
    assert_eq!(
        (title_requests(&stack, &child.id).len(), child.title.as_str()),
        (0, "a subtask (@general subagent)")
    );
    assert_eq!((title_requests(&stack, &parent).len(), title(api, &parent).await.as_str()), (1, "Fix it"));

    // After the second prompt, a session gets no title any more.
    let session = create_untitled(api, None).await;
    run(api, &session, "@title @status 400\n@text Hello").await;
    let (outcome, _) = run(api, &session, "@title @text Machine\n@text again").await;
    assert_eq!((outcome.as_str(), title_requests(&stack, &session).len()), ("done", 1));
    assert!(is_default(&title(api, &session).await));
}

#[tokio::test]
async fn settings_of_the_repository_configure_the_title_agent() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let on = async |settings: &str| {
        let repository = testkit::git::repository(&[("opencode.json", settings)]);
        let from = Some(v1::source::From::BundleId(api.upload(&repository.bundle()).await));
        create_untitled(api, Some(v1::Source { from, revision: String::new() })).await
    };
    let agent = r#""agent": {"title": {"prompt": "You name things.", "temperature": 0.25, "mode": "all"}}"#;
    for (settings, path) in [
        (format!(r#"{{"small_model": "claude/demo", {agent}}}"#), "/v1/messages"),
        (r#"{"small_model": "nowhere/tiny"}"#.to_owned(), "/v1/chat/completions"),
        (
            r#"{"small_model": "claude/demo", "agent": {"title": {"model": "responses/demo"}}}"#.to_owned(),
            "/v1/responses",
        ),
    ] {
        let session = on(&settings).await;
        assert_eq!(run(api, &session, "Fix it\n@text Hello").await.0, "done");
        let request = title_requests(&stack, &session).remove(0);
        assert_eq!((request.path.as_str(), title(api, &session).await.as_str()), (path, "Fix it"));
        let is_told = request.body.to_string().contains("You name things.");
        assert_eq!((is_told, request.body["temperature"] == 0.25), (path == "/v1/messages", is_told));
    }
    let session = on(r#"{"agent": {"title": {"disable": true}}}"#).await;
    run(api, &session, "Fix it\n@text Hello").await;
    assert_eq!(title_requests(&stack, &session).len(), 0);

    let session = on(&format!("{{{agent}}}")).await;
    for hidden in ["title", "summary", "compaction"] {
        let refused = api
            .prompt_with(&session, |prompt| {
                (prompt.text, prompt.agent) = ("hi".to_owned(), hidden.to_owned())
            })
            .await;
        assert_refused(refused, Code::InvalidArgument, "agent_unknown");
    }
}

#[tokio::test]
async fn a_missing_title_has_no_effect_on_the_session() {
    let stack = Stack::without_sandbox().await;
    let check = async |directive: &str, requests: usize| {
        let session = create_untitled(&stack.api, None).await;
        let began = Instant::now();
        let (outcome, transcript) =
            run(&stack.api, &session, &format!("@title {directive}\n@text Here it is.")).await;
        assert_eq!((outcome.as_str(), transcript.error()), ("done", None), "{directive}");
        assert!(began.elapsed() < Duration::from_millis(limits::TITLE_CALL_MS / 2), "{directive}");
        let talk = stack.api.conversation(&session).await;
        assert!(talk[1].1.iter().any(|part| part["text"] == "Here it is."), "{directive}");
        assert_eq!(talk.len(), 2, "{directive}: a title is no message");
        assert!(is_default(&title(&stack.api, &session).await), "{directive}");
        assert_eq!(title_requests(&stack, &session).len(), requests, "{directive}");
    };
    tokio::join!(
        check("@status 401", 1),
        check("@status 500", 2),
        check("@stall", 1),
        check("@html", 1),
        check("@text <think>hm", 1),
    );
}

#[tokio::test]
async fn an_interrupted_title_costs_what_was_generated() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let repository = testkit::git::repository(&[("opencode.json", r#"{"small_model": "claude/demo"}"#)]);
    let from = Some(v1::source::From::BundleId(api.upload(&repository.bundle()).await));
    let session = create_untitled(api, Some(v1::Source { from, revision: String::new() })).await;
    let prompt = "@title @usage input=100 output=7\n@title @cut 3\n@title @text Half a title\n\
                  @usage input=10 output=5\n@text Hello";
    assert_eq!(run(api, &session, prompt).await.0, "done");
    assert_eq!(title_requests(&stack, &session).len(), 2, "the call is retried");
    let state = api.get(&session).await;
    assert!(is_default(&state.title));
    assert_eq!(state.tokens.unwrap().input, 10 + 2 * 100);
}

#[tokio::test]
async fn an_abort_ends_the_model_call_for_a_title() {
    let stack = Stack::without_sandbox().await;
    let session = create_untitled(&stack.api, None).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@title @stall\n@stall 1\n@chunk 4\n@text never whole").await.unwrap();
    watch.until_answering().await;
    stack.model.journal.wait_for(2).await;
    let began = Instant::now();
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    assert!(began.elapsed() < Duration::from_millis(limits::TITLE_WAIT_MS), "no turn waits for a title");
    stack.model.journal.wait_until_idle().await;
}

#[tokio::test]
async fn a_title_from_a_person_is_kept() {
    let stack = Stack::without_sandbox().await;
    let session = create_untitled(&stack.api, None).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let slow = "@title @delay 300\n@title @chunk 4\n@title @usage output=7\n@title @text The machine says so";
    stack.api.prompt(&session, &format!("{slow}\n@usage output=5\n@text Hello")).await.unwrap();
    stack.model.journal.wait_for(2).await;
    update(&stack.api, &session, &["title"], "Mine", false).await;
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let state = stack.api.get(&session).await;
    assert_eq!(
        (state.title.as_str(), state.tokens.unwrap().output),
        ("Mine", 12),
        "the cost of the call is recorded"
    );
    assert!(!watch.transcript.events.iter().any(|event| has_title(event, "The machine says so")));
}

#[tokio::test]
async fn the_next_worker_repeats_the_call_for_a_title() {
    let mut stack = Stack::start().await;
    let (running, over) = (create_untitled(&stack.api, None).await, create_untitled(&stack.api, None).await);
    let title_later = "@title @stall times=1\n@title @text Second try";
    let mut watch = Watch::start(&stack.api, &running).await;
    let command = bash("echo begun; sleep 3; echo ended");
    stack.api.prompt(&running, &format!("{title_later}\n{command}\n@text over")).await.unwrap();
    watch.until_output("begun").await;
    // The other session only lacks its title.
    let mut watch_over = Watch::start(&stack.api, &over).await;
    stack.api.prompt(&over, &format!("{title_later}\n@text over")).await.unwrap();
    watch_over.until(|event| event.properties["info"]["time"]["completed"].is_number()).await;
    assert_eq!((title_requests(&stack, &running).len(), title_requests(&stack, &over).len()), (1, 1));
    stack.crash_worker(0);
    stack.add_worker().await;
    for (watch, session) in [(&mut watch, &running), (&mut watch_over, &over)] {
        assert_eq!(watch.until_idle().await, "done");
        watch.transcript.assert_gap_free();
        assert_eq!(title(&stack.api, session).await, "Second try");
        assert_eq!(title_requests(&stack, session).len(), 2);
    }
}

#[tokio::test]
async fn a_busy_session_can_be_renamed_and_archived_and_a_prompt_restores_it() {
    let stack = Stack::without_sandbox().await;
    let (api, session) = (&stack.api, stack.session().await);
    let mut watch = Watch::start(api, &session).await;
    api.prompt(&session, "@delay 40\n@chunk 4\n@text This answer takes long enough for two changes.")
        .await
        .unwrap();
    watch.until_answering().await;
    let changed = update(api, &session, &["title"], "New name", true).await;
    assert_eq!(
        (changed.title.as_str(), changed.archived_at_ms),
        ("New name", 0),
        "only the fields in the mask change"
    );
    let changed = update(api, &session, &["archived"], "x", true).await;
    assert!(changed.title == "New name" && changed.archived_at_ms > 0, "{changed:?}");
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    assert!(watch.transcript.events.iter().any(|event| has_title(event, "New name")));
    let state = api.get(&session).await;
    assert_eq!((state.title.as_str(), state.archived_at_ms), ("New name", changed.archived_at_ms));
    assert_eq!((listed(api, false).await, listed(api, true).await), (vec![], vec![session.clone()]));

    let before = watch.transcript.events.len();
    api.prompt(&session, "@text again").await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let back = &watch.transcript.events[before];
    assert_eq!(
        (back.kind.as_str(), &back.properties["info"]["time"]["archived"]),
        ("session.updated", &Value::Null)
    );
    assert_eq!(
        (listed(api, false).await, api.get(&session).await.archived_at_ms),
        (vec![session.clone()], 0)
    );

    update(api, &session, &["archived"], "", true).await;
    update(api, &session, &["archived"], "", false).await;
    assert_eq!(listed(api, false).await, [session]);
}
