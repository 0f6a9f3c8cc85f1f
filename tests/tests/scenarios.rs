//! What OpenCode was recorded doing, and what ours does, message by message. Then the same with the loop taken away from
//! its worker after each step, and in between: a conversation ends the same way.
//! `tests/SCENARIOS.md` says where ours differs, and why.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "scenarios/context.rs"]
mod context;
#[path = "scenarios/people.rs"]
mod people;
#[path = "scenarios/prompts.rs"]
mod prompts;
#[path = "scenarios/shape.rs"]
mod shape;
#[path = "scenarios/steps.rs"]
mod steps;

use e2e::{Options, Stack, turn::Watch};
use futures::{StreamExt as _, stream};
use rpc::v1::{self, PermissionVerdict};
use std::collections::BTreeSet;
use store::Store;

/// Conversations that go on at the same time on one stack.
const AT_ONCE: usize = 16;
/// Places between the ends of steps where the loop is lost, too: spread over all events of a conversation.
const PLACES: usize = 3;

/// A conversation and what it must look like at its end.
struct Scenario {
    /// Files of its repository; none: an empty workspace.
    files: &'static [(&'static str, &'static str)],
    /// Rules of the session.
    rules: &'static [(&'static str, PermissionVerdict)],
    /// What is said, one after the other, each when the one before is answered.
    says: &'static [fn(&mut v1::AcceptPromptRequest)],
    /// What people answer to each request.
    answer: Answer,
    /// A line for each message: see [`shape`].
    expected: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum Answer {
    Nothing,
    Permission(v1::PermissionAnswer, &'static str),
    Question(Option<&'static str>),
}

const PLAIN: Scenario =
    Scenario { files: &[], rules: &[], says: &[], answer: Answer::Nothing, expected: &[] };

/// Plays a scenario undisturbed, and once more for each place with the loop lost there.
async fn check(scenario: &Scenario) {
    let stack = Stack::with(Options { workers: 2, ..Options::default() }).await;
    let store = Store::connect(&stack.database.app_url, &stack.database.system_url, 8).unwrap();
    let played = play(&stack, &store, scenario, None).await;
    assert_eq!(played.lines, scenario.expected, "undisturbed");
    let spread = 3..played.events;
    let apart = usize::try_from(played.events).unwrap().div_ceil(PLACES);
    let places: BTreeSet<u64> = spread.step_by(apart).chain(played.step_ends).collect();
    let disturbed = stream::iter(places).map(|after| {
        let (stack, store) = (&stack, &store);
        async move { (after, play(stack, store, scenario, Some(after)).await) }
    });
    let mut lost = 0;
    for (after, played) in disturbed.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
        let fits = shape::fit(&played.lines, scenario.expected);
        assert!(fits, "the loop was lost after event {after}: {:#?}", played.lines);
        lost += usize::from(played.was_lost);
    }
    assert!(lost > 0, "no loop was lost");
    store.close().await;
}

/// How a conversation went.
struct Played {
    lines: Vec<String>,
    /// Number of its events.
    events: u64,
    /// The events that ended its steps.
    step_ends: Vec<u64>,
    was_lost: bool,
}

async fn play(stack: &Stack, store: &Store, scenario: &Scenario, lose_after: Option<u64>) -> Played {
    let session = session_for(stack, scenario).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let (mut was_lost, mut step_ends) = (false, vec![]);
    for say in scenario.says {
        let accepted = stack.api.ask(&session, say).await.expect("an accepted prompt");
        if is_note(say) {
            continue;
        }
        loop {
            let Some(seen) = watch.next().await else { continue };
            if !was_lost && lose_after.is_some_and(|after| seen.seq >= after) {
                was_lost = lose(stack, store, &session).await;
            }
            let info = &seen.properties["info"];
            if info["role"] == "assistant" && !info["time"]["completed"].is_null() {
                step_ends.push(seen.seq);
            }
            match seen.kind.as_str() {
                "permission.asked" | "question.asked" => {
                    answer(stack, scenario.answer, seen.properties["id"].as_str().unwrap()).await;
                }
                "session.idle" if seen.seq > accepted.event_seq => break,
                _ => {}
            }
        }
    }
    let events = stack.api.get(&session).await.event_seq;
    let lines = shape::lines(&stack.api.conversation(&session).await);
    Played { lines, events, step_ends, was_lost }
}

fn is_note(say: &fn(&mut v1::AcceptPromptRequest)) -> bool {
    let mut prompt = v1::AcceptPromptRequest::default();
    say(&mut prompt);
    prompt.no_reply
}

async fn session_for(stack: &Stack, scenario: &Scenario) -> String {
    let source = match scenario.files {
        [] => None,
        files => {
            let bundle_id = stack.api.upload(&testkit::git::repository(files).bundle()).await;
            Some(v1::Source { from: Some(v1::source::From::BundleId(bundle_id)), revision: String::new() })
        }
    };
    stack.api.session_like(source, scenario.rules).await
}

/// Takes the session from its worker, as when that is found dead. `false`: none has it just now.
async fn lose(stack: &Stack, store: &Store, session: &str) -> bool {
    let (tenant, session) = (stack.api.tenant_id.parse().unwrap(), session.parse().unwrap());
    let state = store.get_session(tenant, &session).await.unwrap();
    store.fail_attempt(tenant, &session, state.epoch).await.unwrap();
    state.phase == domain::session::Phase::Running
}

async fn answer(stack: &Stack, answer: Answer, id: &str) {
    let api = &stack.api;
    match answer {
        Answer::Nothing => panic!("nobody expected to be asked"),
        Answer::Permission(answer, message) => {
            api.reply(id, answer, message).await.expect("it is open");
        }
        Answer::Question(label) => {
            // No answer rejects it.
            let labels = |label: &str| v1::QuestionAnswer { labels: vec![label.to_owned()] };
            let answers = label.map(labels).into_iter().collect();
            let reply = v1::ReplyQuestionRequest { question_id: id.to_owned(), answers };
            api.questions().reply_question(reply).await.expect("it is open");
        }
    }
}
