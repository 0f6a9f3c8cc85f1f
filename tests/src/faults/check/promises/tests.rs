//! Tests of the checker: a history without violations, in which each promise is then broken.

mod example;

use super::{CHECKS, all};
use crate::faults::{
    check::violation::Invariant,
    history::{Call, Exit, History, Prompt, ReceivedDelta, Surprise},
};
use example::{
    BEGUN_US, CANARY, CLEAN_EXIT, SESSION, abort, drain_worker, edit_child_events, edit_events, effect,
    event, first, good, poison, session, started, with_answer, with_child,
};
use serde_json::json;
use testkit::dump::{Exec, Input, Session, Unsettled};

/// A promise, a description, and the change that breaks it.
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
    (Invariant::I1, "no client sent an input", |h| {
        let stranger =
            Input { seq: 2, kind: "prompt".to_owned(), dedupe: "key:other".to_owned(), message_id: None };
        first(h).inputs.push(stranger);
    }),
    (Invariant::I1, "no loop took it", |h| first(h).run.input_ack = 0),
    (Invariant::I1, "no turn answered it", |h| {
        edit_events(h, |events| drop(events.pop()));
    }),
    (Invariant::I1, "its session is missing", |h| h.sessions.clear()),
    (Invariant::I1, "its turn omitted a call", |h| {
        first(h).parts.remove(0);
        h.effects.clear();
    }),
    (Invariant::I1, "the model did not receive it", |h| h.requests.clear()),
    (Invariant::I1, "the model received it after the end of the turn", |h| h.requests[0].at_us += 5_000_000),
    (Invariant::I1, "an answer was lost", |h| {
        with_answer(h);
        edit_events(h, |events| events[5].kind = "flotilla.other".to_owned());
    }),
    (Invariant::I1, "another answer was logged", |h| {
        with_answer(h);
        h.answers[0].reply = "reject";
    }),
    (Invariant::I2, "an event is missing", |h| edit_events(h, |events| drop(events.remove(2)))),
    (Invariant::I2, "an event id is repeated", |h| {
        edit_events(h, |events| events[3].id = "evt_3".to_owned())
    }),
    (Invariant::I2, "an epoch decreases", |h| edit_events(h, |events| events[4].epoch = 1)),
    (Invariant::I2, "the head is beyond the log", |h| first(h).run.event_seq = 7),
    (Invariant::I2, "an event has a future epoch", |h| first(h).run.epoch = 1),
];

const EFFECTS: [Breach; 12] = [
    (Invariant::I3, "a command ran twice", |h| h.effects.push(effect(CANARY, BEGUN_US + 360_000))),
    (Invariant::I3, "a command ran without a prompt", |h| h.effects.push(effect("cn.t0.s1.77", BEGUN_US))),
    (Invariant::I3, "a completed command had no effect", |h| h.effects.clear()),
    (Invariant::I3, "a command that is reported as not started had its effect", |h| {
        let state = &mut first(h).parts[0].data["state"];
        state["status"] = json!("error");
        state["error"] = json!("This command was interrupted before it started, when its worker abort.");
    }),
    (Invariant::I3, "an effect is not reported", |h| first(h).parts.clear()),
    (Invariant::I3, "a call did not end", |h| first(h).parts[0].data["state"]["status"] = json!("running")),
    (Invariant::I3, "an older loop acted after a newer one", |h| {
        let mut later = first(h).parts[0].clone();
        later.id = "prt_3".to_owned();
        later.data["state"]["input"] = json!({"command": "echo cn.t0.s1.3"});
        first(h).parts.push(later);
        first(h).execs.push(Exec { exec_id: "prt_3".to_owned(), epoch: 2, ..Exec::default() });
        h.prompts[0].calls.push(Call { canary: "cn.t0.s1.3".to_owned(), tool: "bash" });
        h.effects.push(effect("cn.t0.s1.3", BEGUN_US + 340_000));
    }),
    (Invariant::I3, "a command ran without permission", |h| h.prompts[0].asks = true),
    (Invariant::I3, "it ran before it was allowed", |h| {
        with_answer(h);
        h.answers[0].sent_us = BEGUN_US + 350_001;
    }),
    (Invariant::I3, "a refused command ran", |h| {
        let state = &mut first(h).parts[0].data["state"];
        state["status"] = json!("error");
        state["error"] = json!("The user rejected permission to use this specific tool call.");
    }),
    (Invariant::I9, "a command started after an abort", |h| h.effects[0].at_us = Some(abort(h))),
    (Invariant::I9, "a model call started after an abort", |h| h.requests[0].at_us = abort(h)),
];

const OWNERSHIP: [Breach; 12] = [
    (Invariant::I4, "an epoch was started twice", |h| {
        edit_events(h, |events| {
            events[3].epoch = 1;
            events[2].epoch = 1;
        });
    }),
    (Invariant::I4, "a healthy worker lost its session", |h| h.injections.clear()),
    (Invariant::I4, "the fault hit another worker", |h| h.injections[0].target = "worker-3".to_owned()),
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
    (Invariant::I11, "the 99th percentile of their waits is too long", |h| {
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
    (Invariant::I14, "a worker did not exit", |h| drain_worker(h, Exit { after_ms: None, code: None })),
    (Invariant::I14, "a worker exited without releasing its session", |h| {
        drain_worker(h, CLEAN_EXIT);
        edit_events(h, |events| {
            events[2].kind = "message.updated".to_owned();
            events[2].at_ms -= 100;
        });
    }),
    (Invariant::I14, "a worker exited with an error", |h| {
        drain_worker(h, Exit { code: Some(1), ..CLEAN_EXIT })
    }),
    (Invariant::I14, "a step was lost", |h| {
        drain_worker(h, CLEAN_EXIT);
        edit_events(h, |events| events[4].kind = "message.part.removed".to_owned());
    }),
    (Invariant::I14, "a session paused", |h| {
        drain_worker(h, CLEAN_EXIT);
        edit_events(h, |events| events.iter_mut().skip(3).for_each(|event| event.at_ms += 2_500));
    }),
];

const CLIENTS: [Breach; 10] = [
    (Invariant::I5, "an event did not reach a subscriber", |h| drop(h.transcripts[0].events.remove(2))),
    (Invariant::I5, "the last event did not reach a subscriber", |h| drop(h.transcripts[0].events.pop())),
    (Invariant::I5, "an event reached a subscriber twice", |h| {
        let again = h.transcripts[0].events[2].clone();
        h.transcripts[0].events.insert(3, again);
    }),
    (Invariant::I5, "an event has other properties", |h| h.transcripts[0].events[1].properties = json!({})),
    (Invariant::I6, "a fragment is not in the text", |h| h.transcripts[0].deltas[1].text = " und".to_owned()),
    (Invariant::I6, "a fragment comes after its part was removed", |h| {
        let gone = |part: &str| json!({"partID": part});
        edit_events(h, |events| events.push(event(7, 2, "message.part.removed", gone("prt_2"))));
        h.transcripts[0].deltas[2].after_seq = 7;
    }),
    (Invariant::I6, "a fragment comes twice", |h| {
        let again = h.transcripts[0].deltas[1].clone();
        h.transcripts[0].deltas.insert(2, again);
    }),
    (Invariant::I12, "a subscriber sees another tenant's word", |h| {
        edit_events(h, |events| events[2].properties["text"] = json!("secret cn.t3.s1.1"));
    }),
    (Invariant::I12, "the model receives another tenant's word", |h| {
        h.requests[0].canaries.push("cn.t3.s1.1".to_owned());
    }),
    (Invariant::I12, "a fragment has another tenant's word", |h| {
        let text = "cn.t3.s1.1".to_owned();
        let part_id = "prt_gone".to_owned();
        h.transcripts[0].deltas.push(ReceivedDelta { connection: 1, after_seq: 0, part_id, offset: 0, text });
    }),
];

const END: [Breach; 14] = [
    (Invariant::I7, "a session did not settle", |h| {
        h.final_state.settled_us = None;
        let left = Unsettled { session_id: SESSION.to_owned(), phase: 1, epoch: 1, waiting: 1 };
        h.final_state.unsettled.push(left);
    }),
    (Invariant::I7, "the system settled late", |h| {
        h.final_state.settled_us = Some(h.final_state.repaired_us + 31_000_000)
    }),
    (Invariant::I8, "a child ended after its call", |h| {
        with_child(h);
        edit_child_events(h, |events| events[2].at_ms += 5_000);
    }),
    (Invariant::I8, "a child did not end", |h| {
        with_child(h);
        edit_child_events(h, |events| events.truncate(2));
    }),
    (Invariant::I8, "a subtask has two children", |h| {
        with_child(h);
        let twin = Session { id: "ses_3".to_owned(), ..h.sessions[1].clone() };
        h.sessions.push(twin);
    }),
    (Invariant::I1, "a subtask omitted a call", |h| {
        with_child(h);
        h.sessions[1].parts.truncate(1);
        h.effects.pop();
    }),
    (Invariant::I3, "a subtask's command ran twice", |h| {
        with_child(h);
        h.effects.push(effect("cn.t0.s1.22", BEGUN_US));
    }),
    (Invariant::I10, "a poison is not quarantined", |h| h.poisons.push(poison())),
    (Invariant::I10, "a poison is tried too often", |h| {
        h.poisons.push(poison());
        first(h).run.phase = 4;
        edit_events(h, |events| {
            let more = (7..11).map(|seq| started(seq, seq - 4, "worker-1"));
            events.truncate(4);
            events.extend(more);
        });
    }),
    (Invariant::I10, "a session is quarantined", |h| first(h).run.phase = 4),
    (Invariant::I10, "a turn failed", |h| {
        edit_events(h, |events| events[5].properties["outcome"] = json!("failed"));
    }),
    (Invariant::I13, "a transaction is still open", |h| {
        h.final_state.leftovers.push("1 transaction".to_owned())
    }),
    (Invariant::I9, "an aborted step continued", |h| {
        edit_events(h, |events| {
            events[2].properties["info"]["error"] = json!({"name": "MessageAbortedError"});
        });
    }),
    (Invariant::Surprise, "a process exited by itself", |h| {
        h.surprises.push(Surprise {
            at_us: 0,
            subject: "worker-1".to_owned(),
            description: "exit 101".to_owned(),
        });
    }),
];

fn breaches() -> Vec<Breach> {
    [&INPUTS[..], &EFFECTS, &OWNERSHIP, &CLIENTS, &END].concat()
}

#[test]
fn a_correct_history_has_no_violations() {
    assert_eq!(all(&good()), []);
    let mut drain = good();
    drain_worker(&mut drain, CLEAN_EXIT);
    assert_eq!(all(&drain), [], "a drained worker is replaced");
    let mut tree = good();
    with_child(&mut tree);
    assert_eq!(all(&tree), [], "a child ends before the call of its parent");
    let mut permission = good();
    with_answer(&mut permission);
    assert_eq!(all(&permission), [], "a command runs after a person allowed it");
    let mut poisoned = good();
    poisoned.poisons.push(poison());
    first(&mut poisoned).run.phase = 4;
    assert_eq!(all(&poisoned), [], "a poison is quarantined");
}

#[test]
fn times_of_two_workers_compare_only_beyond_what_their_clocks_differ() {
    let late_child = |late_ms: i64| {
        let mut history = good();
        with_child(&mut history);
        edit_child_events(&mut history, |events| events[2].at_ms += late_ms);
        all(&history).iter().any(|violation| violation.invariant == Invariant::I8)
    };
    assert!(!late_child(1_000), "the clocks may explain it");
    assert!(late_child(5_000), "the clocks cannot explain it");
}

#[test]
fn each_breach_violates_its_promise() {
    for (invariant, what, breach) in breaches() {
        let mut history = good();
        breach(&mut history);
        let found = all(&history);
        assert!(found.iter().any(|violation| violation.invariant == invariant), "{what}: {found:?}");
    }
}

#[test]
fn every_check_fails_for_some_breach() {
    for (at, (invariant, check)) in CHECKS.iter().enumerate() {
        let fails = |(_, _, breach): &Breach| {
            let mut history = good();
            breach(&mut history);
            !check(&history).is_empty()
        };
        assert!(breaches().iter().any(fails), "check {at} ({invariant:?}) finds no breach");
    }
}
