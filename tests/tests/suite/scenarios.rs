//! Recorded OpenCode conversations compared with ours, message by message. Each is then repeated with the loop taken from its
//! worker after each step and in between: the conversation must end in the same way.
//! `tests/SCENARIOS.md` lists the differences and their reasons.

mod client;
mod clients;
mod context;
mod people;
mod prompts;
mod shape;
mod steps;

use client::Client;
use e2e::{Options, Stack};
use futures::{StreamExt as _, stream};
use rpc::v1::{self, PermissionVerdict};
use std::collections::BTreeSet;
use store::Store;

/// Number of conversations that run at the same time on one stack.
const AT_ONCE: usize = 16;
/// Times that all places are tried until one loop is lost. On a busy machine the events of a short turn may arrive after its end.
const ROUNDS_MAX: usize = 10;
/// Number of further positions at which the loop is lost, spread over all events of a conversation.
const PLACES: usize = 3;

/// A conversation and its expected shape.
struct Scenario {
    /// The files of its repository; empty for an empty workspace.
    files: &'static [(&'static str, &'static str)],
    /// The permission rules of the session.
    rules: &'static [(&'static str, PermissionVerdict)],
    /// The prompts. Each is sent after the answer to the previous one.
    says: &'static [fn(&mut v1::AcceptPromptRequest)],
    /// The other actions of the client.
    actions: &'static [(Moment, ClientAction)],
    /// The answers of people to each request.
    answer: Answer,
    /// One line for each message: see [`shape`].
    expected: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum Answer {
    Nothing,
    Permission(v1::PermissionAnswer, &'static str),
    Question(Option<&'static str>),
    /// No answer: the turn is aborted.
    Abort,
}

/// When the client performs an action: at moments at which the session waits for it, so that a lost loop changes nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Before the prompt of that number, when the session is idle.
    Before(usize),
    /// After a request to a person, before the answer.
    Asked,
    Answered,
}

/// An action of a client other than its prompts.
#[derive(Clone, Copy)]
enum ClientAction {
    /// A prompt for the queue.
    Prompt(fn(&mut v1::AcceptPromptRequest)),
    /// A prompt that is refused with this code.
    Refused(fn(&mut v1::AcceptPromptRequest), &'static str),
    /// The same answer again, which is refused with this code.
    AnswerAgain(&'static str),
    /// A fork, which replaces the session from then on.
    Fork,
    /// A revert of the newest prompt.
    Revert,
}

const PLAIN: Scenario =
    Scenario { files: &[], rules: &[], says: &[], actions: &[], answer: Answer::Nothing, expected: &[] };

/// Plays a scenario without a lost loop, and once for each position at which the loop is lost.
async fn check(scenario: &Scenario) {
    let stack = Stack::with(Options { workers: 2, ..Options::default() }).await;
    let store = Store::connect(&stack.database.app_url, &stack.database.system_url, 8).unwrap();
    let played = play(&stack, &store, scenario, None).await;
    assert_eq!(played.lines, scenario.expected, "undisturbed");
    let spread = 3..played.events;
    let apart = usize::try_from(played.events).unwrap().div_ceil(PLACES);
    let places: BTreeSet<u64> = spread.step_by(apart).chain(played.step_ends).collect();
    let mut lost = 0;
    for _ in 0..ROUNDS_MAX {
        let disturbed = stream::iter(&places).map(|&after| {
            let (stack, store) = (&stack, &store);
            async move { (after, play(stack, store, scenario, Some(after)).await) }
        });
        for (after, played) in disturbed.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
            if played.is_missing_snapshot {
                // A busy machine: a revert leaves what the step changed, and the session says so.
                continue;
            }
            let fits = shape::fit(&played.lines, scenario.expected);
            assert!(fits, "the loop was lost after event {after}: {:#?}", played.lines);
            lost += usize::from(played.was_lost);
        }
        if lost > 0 {
            break;
        }
    }
    assert!(lost > 0, "no loop was lost");
    store.close().await;
}

/// The result of a conversation.
struct Playback {
    lines: Vec<String>,
    events: u64,
    /// The events that ended its steps.
    step_ends: Vec<u64>,
    was_lost: bool,
    /// Whether the sandbox did not give a snapshot in time.
    is_missing_snapshot: bool,
}

async fn play(stack: &Stack, store: &Store, scenario: &Scenario, lose_after: Option<u64>) -> Playback {
    let mut client = Client::start(stack, scenario).await;
    let (mut was_lost, mut step_ends, mut events) = (false, vec![], 0);
    let mut is_missing_snapshot = false;
    for (number, say) in scenario.says.iter().enumerate() {
        client.perform(scenario, Moment::Before(number), "").await;
        client.prompt(*say).await;
        if is_note(say) {
            continue;
        }
        loop {
            let Some(event) = client.watch.next().await else { continue };
            events += 1;
            is_missing_snapshot |= event.kind == "flotilla.snapshot.missed";
            if !was_lost && lose_after.is_some_and(|after| events >= after) {
                was_lost = lose(stack, store, &client.session).await;
            }
            let info = &event.properties["info"];
            if info["role"] == "assistant" && !info["time"]["completed"].is_null() {
                step_ends.push(events);
            }
            match event.kind.as_str() {
                "permission.asked" | "question.asked" => {
                    let id = event.properties["id"].as_str().unwrap();
                    client.perform(scenario, Moment::Asked, id).await;
                    client.answer(scenario.answer, id).await.expect("it is open");
                    client.perform(scenario, Moment::Answered, id).await;
                }
                "session.idle" if event.seq > client.accepted => break,
                _ => {}
            }
        }
    }
    let lines = shape::lines(&stack.api.conversation(&client.session).await);
    Playback { lines, events, step_ends, was_lost, is_missing_snapshot }
}

fn is_note(say: &fn(&mut v1::AcceptPromptRequest)) -> bool {
    let mut prompt = v1::AcceptPromptRequest::default();
    say(&mut prompt);
    prompt.no_reply
}

/// Takes the session from its worker, as if the worker were dead. Returns false if no worker runs it.
async fn lose(stack: &Stack, store: &Store, session: &str) -> bool {
    let (tenant, session) = (stack.api.tenant_id.parse().unwrap(), session.parse().unwrap());
    let state = store.get_session(tenant, &session).await.unwrap();
    store.fail_attempt(tenant, &session, state.epoch).await.unwrap();
    state.phase == domain::session::Phase::Running
}
