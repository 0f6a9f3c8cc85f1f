//! Streams in, terminal text out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::stream::item::Reconnect;
use serde_json::json;

fn event(kind: &str, properties: Value) -> Item {
    Item::Event(Event { seq: 1, epoch: 1, kind: kind.to_owned(), properties, at_ms: 0 })
}

fn message(id: &str, role: &str) -> Item {
    event("message.updated", json!({"info": {"id": id, "role": role}}))
}

fn text(id: &str, text: &str, ended: bool) -> Item {
    let time = if ended { json!({"start": 1, "end": 2}) } else { json!({"start": 1}) };
    event(
        "message.part.updated",
        json!({"part": {"id": id, "messageID": "m", "type": "text", "text": text, "time": time}}),
    )
}

fn tool(status: &str, state: Value) -> Item {
    let mut state = state;
    state["status"] = json!(status);
    event(
        "message.part.updated",
        json!({"part": {"id": "t", "messageID": "m", "type": "tool", "tool": "bash", "state": state}}),
    )
}

fn delta(offset_bytes: u64, text: &str) -> Item {
    Item::Delta(Delta {
        message_id: "m".to_owned(),
        part_id: "p".to_owned(),
        field: "text".to_owned(),
        offset_bytes,
        text: text.to_owned(),
    })
}

fn check(items: &[Item], expected: &str) {
    check_on(Renderer::new(Paint::Plain), items, expected);
}

fn check_on(mut renderer: Renderer, items: &[Item], expected: &str) {
    let mut out: String = items.iter().map(|item| renderer.feed(item)).collect();
    out.push_str(&renderer.finish());
    assert_eq!(out, expected);
}

#[test]
fn a_turn_reads_from_top_to_bottom() {
    let user = event(
        "message.part.updated",
        json!({"part": {"id": "u", "messageID": "q", "type": "text", "text": "fix\nit"}}),
    );
    let items = [
        message("q", "user"),
        user,
        message("m", "assistant"),
        text("p", "", false),
        delta(0, "I loo"),
        delta(5, "k at it."),
        text("p", "I look at it.", true),
        tool("pending", json!({"input": {}})),
        tool("running", json!({"input": {"command": "./test.sh"}, "time": {"start": 1000}})),
        tool(
            "completed",
            json!({"input": {}, "title": "Run the tests", "time": {"start": 1000, "end": 2250}}),
        ),
        text("p2", "Fixed.", true),
    ];
    check(&items, "> fix\n> it\nI look at it.\n✓ bash  Run the tests  1.2 s\nFixed.\n");
}

#[test]
fn repeated_and_missing_deltas_do_not_change_the_text() {
    let items = [
        text("p", "", false),
        delta(0, "ab"),
        delta(0, "ab"),    // repeated
        delta(1, "bcd"),   // overlaps
        delta(90, "lost"), // a gap before it
        text("p", "abcdéf", true),
        text("p", "abcdéf", true),
    ];
    check(&items, "abcdéf\n");
}

#[test]
fn a_delta_inside_a_character_is_not_a_panic() {
    check(&[text("p", "", false), delta(0, "é"), delta(1, "éx"), text("p", "éx", true)], "éx\n");
}

fn reasoning(text: &str, ended: bool) -> Item {
    let time = if ended { json!({"start": 1, "end": 2}) } else { json!({"start": 1}) };
    let part = json!({"id": "r", "messageID": "m", "type": "reasoning", "text": text, "time": time});
    event("message.part.updated", json!({"part": part}))
}

#[test]
fn parts_are_shown_in_the_order_in_which_they_began() {
    // As it is stored: nothing but beginnings and ends, the text's end first.
    let begun = [reasoning("", false), text("p", "", false)];
    let ended = [text("p", "The answer", true), reasoning("I think.", true)];
    check(&[begun.as_slice(), ended.as_slice()].concat(), "I think.\nThe answer\n");
    // Until its end is known, or nothing more comes.
    check(&[begun.as_slice(), &ended[..1]].concat(), "The answer\n");
    let tool = tool("completed", json!({"input": {"command": "ls"}}));
    check(&[begun.as_slice(), &ended[..1], &[tool]].concat(), "The answer\n✓ bash  ls\n");
}

#[test]
fn live_text_does_not_wait_for_the_end_of_reasoning() {
    let live = |rest: &[Item]| {
        let mut renderer = Renderer::new(Paint::Plain);
        let begun = [reasoning("", false), reasoning("I think.", false), text("p", "", false)];
        let out: Vec<_> = begun.iter().chain(rest).map(|item| renderer.feed(item)).collect();
        (out.concat(), renderer.finish())
    };
    let (now, end) = live(&[delta(0, "The"), delta(3, " ans")]);
    assert_eq!((now.as_str(), end.as_str()), ("I think.\nThe ans", "\n"));
    // Both ends come with the end of the answer and change nothing.
    let (now, end) = live(&[delta(0, "The"), reasoning("I think.", true), text("p", "The", true)]);
    assert_eq!((now.as_str(), end.as_str()), ("I think.\nThe\n", ""));
    // What was missed of the earlier part is not lost, and does not cut the later one in two.
    let (now, _) =
        live(&[delta(0, "The"), reasoning("I think. So", true), delta(3, " a"), text("p", "The a", true)]);
    assert_eq!(now, "I think.\nThe a\n So\n");
}

#[test]
fn an_attempt_that_was_given_up_is_said_so() {
    let items = [
        text("p", "half", false),
        event("message.part.removed", json!({"messageID": "m", "partID": "p"})),
        event("flotilla.loop.started", json!({"worker": "w2", "attempt": 2})),
        text("p2", "whole", true),
    ];
    check(&items, "half\n· the attempt above was discarded\n· worker w2 took over\nwhole\n");
}

#[test]
fn text_that_was_written_again_replaces_the_old() {
    check(&[text("p", "old text", false), text("p", "new", true)], "old text\n· written again:\nnew\n");
}

#[test]
fn a_tool_is_one_line_when_it_has_ended() {
    let time = json!({"start": 0, "end": 70_000});
    let items = [
        tool("running", json!({"input": {"command": "make"}, "time": {"start": 0}})),
        tool("error", json!({"input": {"command": "make"}, "error": "exit 2", "time": time})),
    ];
    check(&items, "✗ bash  make  1 min 10 s  exit 2\n");
}

#[test]
fn a_start_that_failed_is_shown_with_the_first_command() {
    let metadata = json!({"output": "hi\n\n(start: exit 3)", "start_failure": "start: exit 3"});
    let time = json!({"start": 0, "end": 70_000});
    let state = json!({"title": "x", "output": "hi\n", "metadata": metadata, "time": time});
    let items = [tool("completed", state)];
    check(&items, "✓ bash  x  1 min 10 s\nstart: exit 3\n");
    let with_outputs = Renderer::new(Paint::Plain).with_outputs(true);
    check_on(with_outputs, &items, "✓ bash  x  1 min 10 s\nhi\n\n(start: exit 3)\n");
}

#[test]
fn reasoning_is_dim_and_foreign_control_characters_are_harmless() {
    let part = json!({"part": {"id": "r", "messageID": "m", "type": "reasoning", "text": "a\x1b]0;x", "time": {"start": 1, "end": 2}}});
    check_on(
        Renderer::new(Paint::Colour),
        &[event("message.part.updated", part)],
        "\x1b[2ma\u{fffd}]0;x\x1b[0m\n",
    );
}

#[test]
fn errors_retries_and_questions_are_one_line_each() {
    let items = [
        event("session.status", json!({"status": {"type": "busy"}})),
        event("session.status", json!({"status": {"type": "retry", "attempt": 1, "message": "overloaded"}})),
        event("session.error", json!({"error": {"name": "APIError", "data": {"message": "no key"}}})),
        event("permission.asked", json!({"id": "per_1", "permission": "bash", "patterns": ["rm *\nls"]})),
        event(
            "question.asked",
            json!({"id": "que_1", "questions": [{"question": "Which?"}, {"question": "Why?"}]}),
        ),
        Item::Reconnecting(Reconnect { tries: 2, tries_max: 30, cause: "gone".to_owned() }),
    ];
    check(
        &items,
        "· attempt 1 failed, retrying: overloaded\n✗ no key\n? needs a human: allow bash rm *⏎ ls   flotilla answer per_1 once
? needs a human: Which?   flotilla answer que_1 \"…\" \"…\"\n· connection lost (gone), trying again (2 of 30)\n",
    );
}

#[test]
fn waits_and_quarantine_are_one_line_each() {
    let error = json!({"error": {"name": "UnknownError", "data": {"message": "its loop ended 5 times", "ref": "session_quarantined"}}});
    let items = [
        event("flotilla.session.waiting", json!({"reason": "back_off", "until": 40_000})),
        event("flotilla.session.waiting", json!({"reason": "children", "until": null})),
        event("flotilla.session.quarantined", json!({"reason": "its loop ended 5 times"})),
        event("session.error", error.clone()),
        event("flotilla.snapshot.missed", json!({"messageID": "msg_1"})),
        event("flotilla.workspace.restarted", json!({})),
        event("flotilla.session.released", json!({})),
    ];
    check(
        &items,
        "· waits before the next model call, 40 s at most
· waits for its subtasks
✗ quarantined: its loop ended 5 times
· no snapshot shows what this step changed; it cannot be reverted alone
· the workspace was lost; the session continues with the files of its source
· an operator released the session
",
    );
    check(&[event("session.error", error)], "✗ its loop ended 5 times\n");
}

#[test]
fn a_subtask_is_one_line_for_each_state() {
    let task = |status: &str, summary: Value| {
        let metadata = json!({"sessionId": "ses_2", "summary": summary});
        let time = json!({"start": 0, "end": 2_000});
        let state = json!({"status": status, "input": {"description": "find out"}, "metadata": metadata, "time": time});
        event(
            "message.part.updated",
            json!({"part": {"id": "t", "messageID": "m", "type": "tool", "tool": "task", "state": state}}),
        )
    };
    let calls = json!([{"tool": "read"}, {"tool": "grep"}]);
    let items = [
        task("running", json!([])),
        task("running", calls.clone()),
        task("running", calls.clone()),
        task("completed", calls),
    ];
    check(&items, "✓ task  find out  (ses_2, 2 calls)  2.0 s\n");
}
