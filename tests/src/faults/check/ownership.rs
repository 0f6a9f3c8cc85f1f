//! The owners of each session over time: I4, I11 and I14.

use super::{Invariant, Violation};
use crate::faults::{
    history::{History, Injection},
    observe::STALL,
    recovery::{self, Run},
};
use domain::limits::{DRAIN_GRACE_MS, LEASE_TTL_MS};

/// Duration of a fault's effect after its repair: a lease that was not renewed expires, and another worker must notice.
const FELT_US: i64 = (LEASE_TTL_MS as i64 + 4_000) * 1_000;
/// How long a drained worker may take; milliseconds. The grace, and the commits that are under way.
const DRAIN_MS: i64 = DRAIN_GRACE_MS as i64 + 5_000;
/// How long a session of a drained worker may stand still; milliseconds.
const HAND_OVER_MS: i64 = 2_000;
/// What a light tenant may wait longer than the heavy one: one step of a turn. Milliseconds.
const STEP_MS: i64 = 6_000;
/// What hinders a worker shortly before it is asked to end may hinder it still; microseconds.
const LEAVE_US: i64 = 2_000_000;
/// Waits of which one in a hundred is more than a single bad luck.
const P99_OF: usize = 200;

/// Each epoch was begun by one worker, once.
pub(super) fn one_take_over_for_each_epoch(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for session in &history.sessions {
        let runs = recovery::runs(session);
        for pair in runs.windows(2).filter(|pair| pair[0].epoch >= pair[1].epoch) {
            let what = format!(
                "{} began epoch {} after {} had begun {}",
                pair[1].worker, pair[1].epoch, pair[0].worker, pair[0].epoch
            );
            violations.push(Violation::new(Invariant::I4, &session.id, what));
        }
    }
    violations
}

/// A loop that had not let go was replaced only when its worker was down, cut off, or Postgres was.
pub(super) fn taken_from_the_silent_only(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for session in &history.sessions {
        let runs = recovery::runs(session);
        for pair in runs.windows(2).filter(|pair| !pair[0].let_go) {
            let (old, new) = (&pair[0], &pair[1]);
            let has_cause = history.injected(old.began_us - FELT_US, new.began_us, |injection| {
                let from_us = injection.began_us;
                from_us <= new.began_us && silences(injection, &old.worker)
            }) || felt(history, old, new);
            if !has_cause {
                let what =
                    format!("{} took epoch {} from {}, which was well", new.worker, new.epoch, old.worker);
                violations.push(Violation::new(Invariant::I4, &session.id, what));
            }
        }
    }
    violations
}

fn felt(history: &History, old: &Run, new: &Run) -> bool {
    history.injections.iter().any(|injection| {
        injection.began_us <= new.began_us
            && injection.ended_us + FELT_US >= old.began_us
            && silences(injection, &old.worker)
    })
}

/// Whether a fault may keep a worker from renewing its lease, or makes it let go.
fn silences(injection: &Injection, worker: &str) -> bool {
    let is_of_worker = injection.target.split(['>', ' ']).any(|word| word == worker);
    let is_link = injection.target.contains('>') && !injection.target.contains(' ');
    let is_of_postgres = injection.target.ends_with("postgres");
    injection.kind == STALL
        || (is_of_worker && !is_link)
        || (is_of_worker && is_of_postgres)
        || injection.target == "postgres"
}

/// How long prompts wait for a worker: the median of the light tenants is at most that of the heavy one and a step, and so
/// is their 99th percentile where there are enough of them for one.
pub(super) fn light_tenants_are_served(history: &History) -> Vec<Violation> {
    let (heavy, light) = (recovery::waits_ms(history, true), recovery::waits_ms(history, false));
    let mut violations = vec![];
    for (hundredths, least) in [(50, 1), (99, P99_OF)] {
        let at = |waits: &[i64]| recovery::percentile(waits, hundredths).filter(|_| waits.len() >= least);
        let (Some(heavy_ms), Some(light_ms)) = (at(&heavy), at(&light)) else { continue };
        if light_ms > heavy_ms + STEP_MS {
            let what = format!(
                "p{hundredths} of the light tenants' waits is {light_ms} ms, of the heavy one's {heavy_ms} ms"
            );
            violations.push(Violation::new(Invariant::I11, "all", what));
        }
    }
    violations
}

/// A worker that was asked to end did so in time and well; a session that it ran went on at once, unless something else
/// was broken as well.
pub(super) fn drains_are_quick(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for drain in history.injections.iter().filter(|injection| injection.exit.is_some()) {
        let Some(exit) = drain.exit else { continue };
        let mut blame = |whose: &str, what| violations.push(Violation::new(Invariant::I14, whose, what));
        let is_alone = |from_us, to_us| {
            !history.injected(from_us - FELT_US, to_us, |other| other != drain && other.kind != "wake storm")
        };
        match exit.after_ms {
            Some(ms) if ms <= DRAIN_MS && exit.code == Some(0) => {}
            Some(ms) if ms <= DRAIN_MS => blame(&drain.target, format!("ended with code {:?}", exit.code)),
            Some(ms) => blame(&drain.target, format!("took {ms} ms to end")),
            None => blame(&drain.target, "did not end when it was asked to".to_owned()),
        }
        for session in &history.sessions {
            let Some((old, new)) = recovery::handed_over(session, drain) else { continue };
            if !is_alone(drain.began_us, new.began_us) {
                continue;
            }
            let stood_ms = (new.began_us - old.last_us) / 1_000;
            if stood_ms > HAND_OVER_MS {
                blame(&session.id, format!("stood still for {stood_ms} ms when {} ended", drain.target));
            }
            if new.lost_parts > 0 {
                let what = format!("lost {} parts of a step when {} ended", new.lost_parts, drain.target);
                blame(&session.id, what);
            }
        }
    }
    violations
}

/// A worker that was asked to stop released all its sessions, so no session waited for its lease to expire. The only
/// exception is a worker that could not reach its servers.
pub(super) fn drains_take_leave(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for drain in history.injections.iter().filter(|injection| injection.exit.is_some()) {
        let is_excused = |old: &Run| {
            let is_lost = |other: &Injection| other != drain && silences(other, &drain.target);
            let hinders = |other: &Injection| {
                let is_near = other.target.split(['>', ' ']).any(|word| word == drain.target);
                other != drain && (is_near || other.target == "sandbox")
            };
            history.injected(old.began_us, drain.ended_us, is_lost)
                || history.injected(drain.began_us - LEAVE_US, drain.ended_us, hinders)
        };
        for session in &history.sessions {
            let left = recovery::dropped(session, drain).filter(|(old, _)| !is_excused(old));
            if let Some((old, new)) = left {
                let what = format!(
                    "{} ended without a word at epoch {}; {} went on {} ms later",
                    drain.target,
                    old.epoch,
                    new.worker,
                    (new.began_us - old.last_us) / 1_000
                );
                violations.push(Violation::new(Invariant::I14, &session.id, what));
            }
        }
    }
    violations
}
