//! The judge is judged: a history in which all is well, and each promise broken in it by hand.

use super::{CHECKS, Invariant, all};
use crate::faults::history::{
    Abort, Call, Effect, Exit, History, Injection, Prompt, Request, SeenDelta, SeenEvent, Surprise,
    Transcript,
};
use serde_json::{Value, json};
use testkit::dump::{Event, Exec, Input, Message, Part, Run, Session, Unsettled};

/// When the first prompt was answered; microseconds.
const BEGUN_US: i64 = 1_000_000_000;
const SESSION: &str = "ses_1";
const CANARY: &str = "cn.t0.s1.2";

fn event(seq: i64, epoch: i64, kind: &str, properties: Value) -> Event {
    let id = format!("evt_{seq}");
    Event { seq, epoch, id, kind: kind.to_owned(), properties, at_ms: BEGUN_US / 1_000 + seq * 100 }
}

fn started(seq: i64, epoch: i64, worker: &str) -> Event {
    event(seq, epoch, "flotilla.loop.started", json!({"worker": worker, "attempt": 1}))
}

fn tool(status: &str) -> Value {
    let input = json!({"command": format!("echo {CANARY} >> effects")});
    json!({"id": "prt_1", "messageID": "msg_2", "state": {"status": status, "input": input, "error": ""}})
}

/// One prompt, which a first worker began and a second one ended after the first had been killed.
fn events() -> Vec<Event> {
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

fn session() -> Session {
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

fn transcript() -> Transcript {
    let seen = |event: Event| SeenEvent {
        at_us: 0,
        seq: event.seq,
        epoch: event.epoch,
        id: event.id,
        kind: event.kind,
        properties: event.properties,
    };
    let delta = |connection, offset, text: &str| SeenDelta {
        connection,
        part_id: "prt_2".to_owned(),
        offset,
        text: text.to_owned(),
    };
    Transcript {
        session_id: SESSION.to_owned(),
        events: events().into_iter().map(seen).collect(),
        deltas: vec![delta(1, 0, "Over"), delta(1, 4, " and"), delta(2, 4, " and out.")],
        ..Transcript::default()
    }
}

fn injection(kind: &'static str, target: &str, began_us: i64) -> Injection {
    Injection { kind, target: target.to_owned(), began_us, ended_us: began_us, ..Injection::default() }
}

fn effect(canary: &str, at_us: i64) -> Effect {
    let (tenant_id, session_id) = ("t".to_owned(), SESSION.to_owned());
    Effect { tenant_id, session_id, canary: canary.to_owned(), at_us: Some(at_us) }
}

/// A history in which every promise is kept.
fn good() -> History {
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
    history.end.mended_us = BEGUN_US + 1_000_000;
    history.end.settled_us = Some(BEGUN_US + 2_000_000);
    history
}

/// What is broken, and how.
type Breach = (Invariant, &'static str, fn(&mut History));

fn first(history: &mut History) -> &mut Session {
    &mut history.sessions[0]
}

/// Events that a client saw are those that are stored: both change together.
fn tell(history: &mut History, change: impl Fn(&mut Vec<Event>)) {
    change(&mut first(history).events);
    let events = history.sessions[0].events.clone();
    let head = events.last().map_or(0, |event| event.seq);
    history.sessions[0].run.event_seq = head;
    history.transcripts[0].events.clear();
    for Event { seq, epoch, id, kind, properties, .. } in events {
        history.transcripts[0].events.push(SeenEvent { at_us: 0, seq, epoch, id, kind, properties });
    }
}

fn stopped(history: &mut History) -> i64 {
    let sent_us = BEGUN_US + 100_000;
    let accepted_us = sent_us + 1_000;
    history.aborts.push(Abort { session_id: SESSION.to_owned(), sent_us, accepted_us, was_active: true });
    accepted_us + 5_100_000
}

fn drained(history: &mut History, exit: Exit) {
    history.injections = vec![Injection {
        ended_us: BEGUN_US + 400_000,
        exit: Some(exit),
        ..injection("SIGTERM worker", "worker-1", BEGUN_US + 250_000)
    }];
}

const WELL: Exit = Exit { after_ms: Some(900), code: Some(0) };

const INPUTS: [Breach; 14] = [
    (Invariant::I1, "a confirmed prompt is not stored", |h| first(h).inputs.clear()),
    (Invariant::I1, "it is stored twice", |h| {
        let again = Input { seq: 2, ..first(h).inputs[0].clone() };
        first(h).inputs.push(again);
        (first(h).run.input_seq, first(h).run.input_ack) = (2, 2);
    }),
    (Invariant::I1, "the same key gave another message", |h| h.prompts[0].answers[1] = "msg_9".to_owned()),
    (Invariant::I1, "its message is missing", |h| first(h).messages.clear()),
    (Invariant::I1, "an input comes from nowhere", |h| {
        let stranger =
            Input { seq: 2, kind: "prompt".to_owned(), dedupe: "key:other".to_owned(), message_id: None };
        first(h).inputs.push(stranger);
    }),
    (Invariant::I1, "it was never taken", |h| first(h).run.input_ack = 0),
    (Invariant::I1, "it was never answered", |h| {
        tell(h, |events| drop(events.pop()));
    }),
    (Invariant::I1, "its session is gone", |h| h.sessions.clear()),
    (Invariant::I1, "its turn forgot a call", |h| {
        first(h).parts.remove(0);
        h.effects.clear();
    }),
    (Invariant::I2, "an event is missing", |h| tell(h, |events| drop(events.remove(2)))),
    (Invariant::I2, "an event is there twice", |h| tell(h, |events| events[3].id = "evt_3".to_owned())),
    (Invariant::I2, "an epoch falls", |h| tell(h, |events| events[4].epoch = 1)),
    (Invariant::I2, "the head is beyond the log", |h| first(h).run.event_seq = 7),
    (Invariant::I2, "an event is of an epoch to come", |h| first(h).run.epoch = 1),
];

const EFFECTS: [Breach; 9] = [
    (Invariant::I3, "a command ran twice", |h| h.effects.push(effect(CANARY, BEGUN_US + 360_000))),
    (Invariant::I3, "a command ran that nobody sent", |h| h.effects.push(effect("cn.t0.s1.77", BEGUN_US))),
    (Invariant::I3, "what is done was not", |h| h.effects.clear()),
    (Invariant::I3, "what had not begun was done", |h| {
        let state = &mut first(h).parts[0].data["state"];
        state["status"] = json!("error");
        state["error"] = json!("This command was interrupted before it started, when its worker stopped.");
    }),
    (Invariant::I3, "what is done is not told", |h| first(h).parts.clear()),
    (Invariant::I3, "a call has no end", |h| first(h).parts[0].data["state"]["status"] = json!("running")),
    (Invariant::I3, "an older loop did something after a newer one", |h| {
        let mut later = first(h).parts[0].clone();
        later.id = "prt_3".to_owned();
        later.data["state"]["input"] = json!({"command": "echo cn.t0.s1.3"});
        first(h).parts.push(later);
        first(h).execs.push(Exec { exec_id: "prt_3".to_owned(), epoch: 2, ..Exec::default() });
        h.prompts[0].calls.push(Call { canary: "cn.t0.s1.3".to_owned(), tool: "bash" });
        h.effects.push(effect("cn.t0.s1.3", BEGUN_US + 340_000));
    }),
    (Invariant::I9, "a command begins after an abort", |h| h.effects[0].at_us = Some(stopped(h))),
    (Invariant::I9, "a model call begins after an abort", |h| h.requests[0].at_us = stopped(h)),
];

const OWNERSHIP: [Breach; 10] = [
    (Invariant::I4, "an epoch was begun twice", |h| {
        tell(h, |events| {
            events[3].epoch = 1;
            events[2].epoch = 1;
        });
    }),
    (Invariant::I4, "a worker that was well lost its session", |h| h.injections.clear()),
    (Invariant::I4, "the fault was another worker's", |h| h.injections[0].target = "worker-3".to_owned()),
    (Invariant::I4, "the fault came later", |h| h.injections[0].began_us += 10_000_000),
    (Invariant::I4, "the link does not matter", |h| h.injections[0].target = "worker-1>redis".to_owned()),
    (Invariant::I11, "light tenants wait longer than the heavy one", |h| {
        let mut light = session();
        light.id = "ses_2".to_owned();
        light.events.iter_mut().skip(1).for_each(|event| event.at_ms += 7_000);
        h.injections[0].ended_us += 10_000_000;
        let prompt = Prompt { tenant: 1, session_id: "ses_2".to_owned(), ..h.prompts[0].clone() };
        h.sessions.push(light);
        h.prompts.push(prompt);
    }),
    (Invariant::I14, "a worker did not end", |h| drained(h, Exit { after_ms: None, code: None })),
    (Invariant::I14, "a worker ended badly", |h| drained(h, Exit { code: Some(1), ..WELL })),
    (Invariant::I14, "a step was lost", |h| {
        drained(h, WELL);
        tell(h, |events| events[4].kind = "message.part.removed".to_owned());
    }),
    (Invariant::I14, "a session stood still", |h| {
        drained(h, WELL);
        tell(h, |events| events.iter_mut().skip(3).for_each(|event| event.at_ms += 2_500));
    }),
];

const CLIENTS: [Breach; 9] = [
    (Invariant::I5, "an event did not reach a subscriber", |h| drop(h.transcripts[0].events.remove(2))),
    (Invariant::I5, "the last event did not", |h| drop(h.transcripts[0].events.pop())),
    (Invariant::I5, "an event reached it twice", |h| {
        let again = h.transcripts[0].events[2].clone();
        h.transcripts[0].events.insert(3, again);
    }),
    (Invariant::I5, "an event says something else", |h| h.transcripts[0].events[1].properties = json!({})),
    (Invariant::I6, "a fragment is not in the text", |h| h.transcripts[0].deltas[1].text = " und".to_owned()),
    (Invariant::I6, "a fragment comes twice", |h| {
        let again = h.transcripts[0].deltas[1].clone();
        h.transcripts[0].deltas.insert(2, again);
    }),
    (Invariant::I12, "a subscriber sees another tenant's word", |h| {
        tell(h, |events| events[2].properties["text"] = json!("secret cn.t3.s1.1"));
    }),
    (Invariant::I12, "the model is told another tenant's word", |h| {
        h.requests[0].canaries.push("cn.t3.s1.1".to_owned());
    }),
    (Invariant::I12, "a fragment has another tenant's word", |h| {
        let text = "cn.t3.s1.1".to_owned();
        let part_id = "prt_gone".to_owned();
        h.transcripts[0].deltas.push(SeenDelta { connection: 1, part_id, offset: 0, text });
    }),
];

const END: [Breach; 8] = [
    (Invariant::I7, "a session never came to rest", |h| {
        h.end.settled_us = None;
        let left = Unsettled { session_id: SESSION.to_owned(), phase: 1, epoch: 1, waiting: 1 };
        h.end.unsettled.push(left);
    }),
    (Invariant::I7, "rest came late", |h| h.end.settled_us = Some(h.end.mended_us + 31_000_000)),
    (Invariant::I8, "a child ended after its parent", |h| {
        let mut child = session();
        (child.id, child.parent_id) = ("ses_2".to_owned(), Some(SESSION.to_owned()));
        child.inputs.clear();
        child.events.iter_mut().for_each(|event| event.at_ms += 5_000);
        h.injections[0].ended_us += 10_000_000;
        h.sessions.push(child);
    }),
    (Invariant::I10, "a session is quarantined", |h| first(h).run.phase = 4),
    (Invariant::I10, "a turn failed", |h| {
        tell(h, |events| events[5].properties["outcome"] = json!("failed"));
    }),
    (Invariant::I13, "a transaction stands open", |h| h.end.leftovers.push("1 transaction".to_owned())),
    (Invariant::I9, "an aborted step went on", |h| {
        tell(h, |events| {
            events[2].properties["info"]["error"] = json!({"name": "MessageAbortedError"});
        });
    }),
    (Invariant::Surprise, "a process ended by itself", |h| {
        h.surprises.push(Surprise { at_us: 0, whose: "worker-1".to_owned(), what: "exit 101".to_owned() });
    }),
];

fn breaches() -> Vec<Breach> {
    [&INPUTS[..], &EFFECTS, &OWNERSHIP, &CLIENTS, &END].concat()
}

#[test]
fn a_history_in_which_all_is_well_is_not_blamed() {
    assert_eq!(all(&good()), []);
    let mut drain = good();
    drained(&mut drain, WELL);
    assert_eq!(all(&drain), [], "a worker that was asked to end is replaced");
}

#[test]
fn each_breach_is_seen_as_what_it_is() {
    for (invariant, what, breach) in breaches() {
        let mut history = good();
        breach(&mut history);
        let found = all(&history);
        assert!(found.iter().any(|violation| violation.invariant == invariant), "{what}: {found:?}");
    }
}

#[test]
fn every_check_has_been_seen_failing() {
    for (at, (invariant, check)) in CHECKS.iter().enumerate() {
        let sees = |(_, _, breach): &Breach| {
            let mut history = good();
            breach(&mut history);
            !check(&history).is_empty()
        };
        assert!(breaches().iter().any(sees), "check {at} ({invariant:?}) sees nothing");
    }
}
