//! A history that keeps every promise, and changes to it.

use crate::faults::history::{
    Abort, Answer, Call, Effect, Exit, History, Injection, Poison, Prompt, ReceivedDelta, ReceivedEvent,
    Request, Subtask, Transcript,
};
use serde_json::{Value, json};
use testkit::dump::{Event, Exec, Input, Message, Part, Run, Session};

/// When the first prompt was accepted; microseconds.
pub(super) const BEGUN_US: i64 = 1_000_000_000;
pub(super) const SESSION: &str = "ses_1";
pub(super) const CANARY: &str = "cn.t0.s1.2";

pub(super) fn event(seq: i64, epoch: i64, kind: &str, properties: Value) -> Event {
    let id = format!("evt_{seq}");
    Event { seq, epoch, id, kind: kind.to_owned(), properties, at_ms: BEGUN_US / 1_000 + seq * 100 }
}

pub(super) fn started(seq: i64, epoch: i64, worker: &str) -> Event {
    event(seq, epoch, "flotilla.loop.started", json!({"worker": worker, "attempt": 1}))
}

pub(super) fn tool(status: &str) -> Value {
    let input = json!({"command": format!("echo {CANARY} >> effects")});
    json!({"id": "prt_1", "messageID": "msg_2", "state": {"status": status, "input": input, "error": ""}})
}

/// The events of one prompt. The first worker was killed, and a second worker finished the turn.
pub(super) fn events() -> Vec<Event> {
    let user = json!({"info": {"id": "msg_1", "role": "user"}});
    let answer = json!({"info": {"id": "msg_2", "role": "assistant"}});
    vec![
        event(1, 0, "message.updated", user),
        started(2, 1, "worker-1"),
        event(3, 1, "message.updated", answer),
        started(4, 2, "worker-2"),
        event(5, 2, "message.part.updated", json!({"part": tool("completed")})),
        event(6, 2, "session.idle", json!({"outcome": "done"})),
    ]
}

pub(super) fn session() -> Session {
    let part = |id: &str, kind: &str, data| Part {
        id: id.to_owned(),
        message_id: "msg_2".to_owned(),
        kind: kind.to_owned(),
        data,
    };
    Session {
        tenant_id: "t".to_owned(),
        id: SESSION.to_owned(),
        run: Run { epoch: 2, event_seq: 6, input_seq: 1, input_ack: 1, phase: 0 },
        inputs: vec![Input {
            seq: 1,
            kind: "prompt".to_owned(),
            dedupe: "key:k".to_owned(),
            message_id: Some("msg_1".to_owned()),
        }],
        events: events(),
        messages: vec![Message {
            id: "msg_1".to_owned(),
            seq: 1,
            role: "user".to_owned(),
            info: Value::Null,
        }],
        parts: vec![
            part("prt_1", "tool", tool("completed")),
            part("prt_2", "text", json!({"text": "Over and out.", "time": {"end": 1}})),
        ],
        execs: vec![Exec { exec_id: "prt_1".to_owned(), epoch: 1, ..Exec::default() }],
        ..Session::default()
    }
}

pub(super) fn transcript() -> Transcript {
    let received = |event: Event| ReceivedEvent {
        at_us: 0,
        seq: event.seq,
        epoch: event.epoch,
        id: event.id,
        kind: event.kind,
        properties: event.properties,
    };
    let delta = |connection, offset, text: &str| ReceivedDelta {
        connection,
        part_id: "prt_2".to_owned(),
        offset,
        text: text.to_owned(),
        after_seq: 5,
    };
    Transcript {
        session_id: SESSION.to_owned(),
        events: events().into_iter().map(received).collect(),
        deltas: vec![delta(1, 0, "Over"), delta(1, 4, " and"), delta(2, 4, " and out.")],
        ..Transcript::default()
    }
}

pub(super) fn injection(kind: &'static str, target: &str, began_us: i64) -> Injection {
    Injection { kind, target: target.to_owned(), began_us, ended_us: began_us, ..Injection::default() }
}

pub(super) fn effect(canary: &str, at_us: i64) -> Effect {
    let (tenant_id, session_id) = ("t".to_owned(), SESSION.to_owned());
    Effect { tenant_id, session_id, canary: canary.to_owned(), at_us: Some(at_us) }
}

/// Returns a history that keeps every promise.
pub(super) fn good() -> History {
    let call = Call { canary: CANARY.to_owned(), tool: "bash" };
    let mut history = History {
        sessions: vec![session()],
        prompts: vec![Prompt {
            session_id: SESSION.to_owned(),
            key: "k".to_owned(),
            canary: "cn.t0.s1.1".to_owned(),
            calls: vec![call],
            answers: vec!["msg_1".to_owned(), "msg_1".to_owned()],
            accepted_us: Some(BEGUN_US),
            ..Prompt::default()
        }],
        transcripts: vec![transcript()],
        effects: vec![effect(CANARY, BEGUN_US + 350_000)],
        requests: vec![Request {
            at_us: BEGUN_US + 300_000,
            session_id: SESSION.to_owned(),
            prompt: "cn.t0.s1.1".to_owned(),
            canaries: vec!["cn.t0.s1.1".to_owned()],
        }],
        injections: vec![injection("kill -9 worker", "worker-1", BEGUN_US + 350_000)],
        ..History::default()
    };
    history.final_state.repaired_us = BEGUN_US + 1_000_000;
    history.final_state.settled_us = Some(BEGUN_US + 2_000_000);
    history
}

pub(super) fn first(history: &mut History) -> &mut Session {
    &mut history.sessions[0]
}

/// Changes the stored events and those that the client received.
pub(super) fn edit_events(history: &mut History, change: impl Fn(&mut Vec<Event>)) {
    change(&mut first(history).events);
    let events = history.sessions[0].events.clone();
    let head = events.last().map_or(0, |event| event.seq);
    history.sessions[0].run.event_seq = head;
    history.transcripts[0].events.clear();
    for Event { seq, epoch, id, kind, properties, .. } in events {
        history.transcripts[0].events.push(ReceivedEvent { at_us: 0, seq, epoch, id, kind, properties });
    }
}

pub(super) fn abort(history: &mut History) -> i64 {
    let sent_us = BEGUN_US + 100_000;
    let accepted_us = sent_us + 1_000;
    history.aborts.push(Abort { session_id: SESSION.to_owned(), sent_us, accepted_us, was_active: true });
    accepted_us + 5_100_000
}

pub(super) fn drain_worker(history: &mut History, exit: Exit) {
    history.injections = vec![Injection {
        ended_us: BEGUN_US + 400_000,
        exit: Some(exit),
        ..injection("SIGTERM worker", "worker-1", BEGUN_US + 250_000)
    }];
    edit_events(history, |events| events[2].kind = "flotilla.loop.handed_over".to_owned());
}

pub(super) const CLEAN_EXIT: Exit = Exit { after_ms: Some(900), code: Some(0) };

pub(super) fn poison() -> Poison {
    Poison { session_id: SESSION.to_owned(), killed: vec!["worker-1".to_owned()] }
}

/// Adds a subtask to the prompt. The child ends before the call of its parent.
pub(super) fn with_child(history: &mut History) {
    let call = Call { canary: "cn.t0.s1.22".to_owned(), tool: "bash" };
    history.prompts[0].subtasks.push(Subtask {
        within: "cn.t0.s1.1".to_owned(),
        call: "cn.t0.s1.20".to_owned(),
        canary: "cn.t0.s1.21".to_owned(),
        calls: vec![call],
    });
    history.effects.push(effect("cn.t0.s1.22", BEGUN_US + 300_000));
    let canaries = vec!["cn.t0.s1.21".to_owned()];
    history.requests.push(Request { at_us: BEGUN_US + 250_000, canaries, ..Request::default() });
    let state = json!({
        "status": "completed", "metadata": {"sessionId": "ses_2"},
        "input": {"description": "cn.t0.s1.20", "prompt": "cn.t0.s1.21\nsay cn.t0.s1.22"},
    });
    let data = json!({"id": "prt_5", "messageID": "msg_2", "tool": "task", "state": state});
    edit_events(history, |events| {
        events[4].at_ms += 100;
        events.insert(5, event(6, 2, "message.part.updated", json!({"part": data})));
        (events[6].seq, events[6].id) = (7, "evt_7".to_owned());
    });
    let part = |id: &str, message: &str, kind: &str, data| Part {
        id: id.to_owned(),
        message_id: message.to_owned(),
        kind: kind.to_owned(),
        data,
    };
    first(history).parts.push(part("prt_5", "msg_2", "tool", data));
    let state = json!({"state": {"status": "completed", "input": {"command": "cn.t0.s1.22"}}});
    let user = json!({"info": {"id": "msg_5", "role": "user"}});
    history.sessions.push(Session {
        id: "ses_2".to_owned(),
        parent_id: Some(SESSION.to_owned()),
        run: Run { epoch: 1, event_seq: 3, ..Run::default() },
        messages: vec![Message {
            id: "msg_5".to_owned(),
            seq: 1,
            role: "user".to_owned(),
            info: Value::Null,
        }],
        parts: vec![
            part("prt_6", "msg_5", "text", json!({"text": "cn.t0.s1.21\nsay cn.t0.s1.22"})),
            part("prt_7", "msg_6", "tool", state),
        ],
        events: vec![
            event(1, 0, "message.updated", user),
            started(2, 1, "worker-3"),
            event(3, 1, "session.idle", json!({"outcome": "done"})),
        ],
        ..Session::default()
    });
}

pub(super) fn edit_child_events(history: &mut History, change: impl Fn(&mut Vec<Event>)) {
    let child = &mut history.sessions[1];
    change(&mut child.events);
    child.run.event_seq = child.events.last().map_or(0, |event| event.seq);
}

/// Makes a person allow the command before it starts.
pub(super) fn with_answer(history: &mut History) {
    history.prompts[0].asks = true;
    let request_id = "per_1".to_owned();
    let reply = json!({"requestID": request_id, "reply": "once"});
    edit_events(history, |events| {
        events[5] = event(6, 2, "permission.replied", reply.clone());
        events.push(event(7, 2, "session.idle", json!({"outcome": "done"})));
    });
    let (sent_us, accepted_us) = (BEGUN_US + 200_000, Some(BEGUN_US + 210_000));
    let session_id = SESSION.to_owned();
    history.answers.push(Answer { session_id, request_id, reply: "once", sent_us, accepted_us });
}
