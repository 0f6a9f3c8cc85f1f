//! Tests of the checker: a history without violations, and each promise broken in it by hand.

mod made;

use super::{CHECKS, Invariant, all};
use crate::faults::history::{Call, Exit, History, Prompt, SeenDelta, Surprise};
use made::{
    BEGUN_US, CANARY, SESSION, WELL, drained, effect, event, first, good, poison, session, started, stopped,
    tell, tell_child, with_answer, with_child,
};
use serde_json::json;
use testkit::dump::{Exec, Input, Session, Unsettled};

/// What is broken, and how.
type Breach = (Invariant, &'static str, fn(&mut History));

const INPUTS: [Breach; 18] = [
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
    (Invariant::I1, "the model was never told of it", |h| h.requests.clear()),
    (Invariant::I1, "the model was told of it when the turn was over", |h| h.requests[0].at_us += 1_000_000),
    (Invariant::I1, "an answer was lost", |h| {
        with_answer(h);
        tell(h, |events| events[5].kind = "flotilla.other".to_owned());
    }),
    (Invariant::I1, "another answer was told", |h| {
        with_answer(h);
        h.answers[0].said = "reject";
    }),
    (Invariant::I2, "an event is missing", |h| tell(h, |events| drop(events.remove(2)))),
    (Invariant::I2, "an event is there twice", |h| tell(h, |events| events[3].id = "evt_3".to_owned())),
    (Invariant::I2, "an epoch falls", |h| tell(h, |events| events[4].epoch = 1)),
    (Invariant::I2, "the head is beyond the log", |h| first(h).run.event_seq = 7),
    (Invariant::I2, "an event is of an epoch to come", |h| first(h).run.epoch = 1),
];

const EFFECTS: [Breach; 12] = [
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
    (Invariant::I3, "a command ran that nobody had allowed", |h| h.prompts[0].asks = true),
    (Invariant::I3, "it ran before it was allowed", |h| {
        with_answer(h);
        h.answers[0].sent_us = BEGUN_US + 350_001;
    }),
    (Invariant::I3, "what was refused was done", |h| {
        let state = &mut first(h).parts[0].data["state"];
        state["status"] = json!("error");
        state["error"] = json!("The person refused this call.");
    }),
    (Invariant::I9, "a command begins after an abort", |h| h.effects[0].at_us = Some(stopped(h))),
    (Invariant::I9, "a model call begins after an abort", |h| h.requests[0].at_us = stopped(h)),
];

const OWNERSHIP: [Breach; 12] = [
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
    (Invariant::I11, "one in a hundred of them waits for very long", |h| {
        for number in 0..500 {
            let mut other = session();
            other.id = format!("ses_{}", number + 10);
            let later = if number % 50 == 1 { 9_000 } else { 0 };
            other.events.iter_mut().skip(1).for_each(|event| event.at_ms += later);
            let (tenant, session_id) = (number % 2, other.id.clone());
            h.prompts.push(Prompt { tenant, session_id, ..h.prompts[0].clone() });
            h.sessions.push(other);
        }
    }),
    (Invariant::I14, "a worker did not end", |h| drained(h, Exit { after_ms: None, code: None })),
    (Invariant::I14, "a worker ended without a word", |h| {
        drained(h, WELL);
        tell(h, |events| {
            events[2].kind = "message.updated".to_owned();
            events[2].at_ms -= 100;
        });
    }),
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

const CLIENTS: [Breach; 10] = [
    (Invariant::I5, "an event did not reach a subscriber", |h| drop(h.transcripts[0].events.remove(2))),
    (Invariant::I5, "the last event did not", |h| drop(h.transcripts[0].events.pop())),
    (Invariant::I5, "an event reached it twice", |h| {
        let again = h.transcripts[0].events[2].clone();
        h.transcripts[0].events.insert(3, again);
    }),
    (Invariant::I5, "an event says something else", |h| h.transcripts[0].events[1].properties = json!({})),
    (Invariant::I6, "a fragment is not in the text", |h| h.transcripts[0].deltas[1].text = " und".to_owned()),
    (Invariant::I6, "a fragment comes after its part was taken back", |h| {
        let gone = |part: &str| json!({"partID": part});
        tell(h, |events| events.push(event(7, 2, "message.part.removed", gone("prt_2"))));
        h.transcripts[0].deltas[2].after_seq = 7;
    }),
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
        h.transcripts[0].deltas.push(SeenDelta { connection: 1, after_seq: 0, part_id, offset: 0, text });
    }),
];

const END: [Breach; 14] = [
    (Invariant::I7, "a session never came to rest", |h| {
        h.end.settled_us = None;
        let left = Unsettled { session_id: SESSION.to_owned(), phase: 1, epoch: 1, waiting: 1 };
        h.end.unsettled.push(left);
    }),
    (Invariant::I7, "rest came late", |h| h.end.settled_us = Some(h.end.mended_us + 31_000_000)),
    (Invariant::I8, "a child ended after its call", |h| {
        with_child(h);
        tell_child(h, |events| events[2].at_ms += 1_000);
    }),
    (Invariant::I8, "a child never ended", |h| {
        with_child(h);
        tell_child(h, |events| events.truncate(2));
    }),
    (Invariant::I8, "a subtask has two children", |h| {
        with_child(h);
        let twin = Session { id: "ses_3".to_owned(), ..h.sessions[1].clone() };
        h.sessions.push(twin);
    }),
    (Invariant::I1, "a subtask forgot a call", |h| {
        with_child(h);
        h.sessions[1].parts.truncate(1);
        h.effects.pop();
    }),
    (Invariant::I3, "a subtask's command ran twice", |h| {
        with_child(h);
        h.effects.push(effect("cn.t0.s1.22", BEGUN_US));
    }),
    (Invariant::I10, "a poison goes on for ever", |h| h.poisons.push(poison())),
    (Invariant::I10, "a poison is tried once more", |h| {
        h.poisons.push(poison());
        first(h).run.phase = 4;
        tell(h, |events| {
            let more = (7..11).map(|seq| started(seq, seq - 4, "worker-1"));
            events.truncate(4);
            events.extend(more);
        });
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
    let mut tree = good();
    with_child(&mut tree);
    assert_eq!(all(&tree), [], "a child ends before the call of its parent");
    let mut asked = good();
    with_answer(&mut asked);
    assert_eq!(all(&asked), [], "a command runs when somebody allowed it");
    let mut poisoned = good();
    poisoned.poisons.push(poison());
    first(&mut poisoned).run.phase = 4;
    assert_eq!(all(&poisoned), [], "a poison is quarantined");
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
