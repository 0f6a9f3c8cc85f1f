//! The owners of each session over time: I4, I11 and I14.

use super::violation::{Invariant, Violation};
use crate::faults::{
    history::{History, Injection, STALL},
    recovery::{self, Run},
};
use domain::limits::{DRAIN_GRACE_MS, LEASE_TTL_MS};

/// Duration of a fault's effect after its repair: a lease that was not renewed expires, and another worker must notice.
const EFFECT_US: i64 = (LEASE_TTL_MS as i64 + 4_000) * 1_000;
/// Time limit for a drained worker to exit: the grace period, and the commits in progress. Milliseconds.
const DRAIN_MS: i64 = DRAIN_GRACE_MS as i64 + 5_000;
/// Time limit for the handover of a session of a drained worker; milliseconds.
const HAND_OVER_MS: i64 = 2_000;
/// How much longer a light tenant may wait than the heavy tenant: one step of a turn. Milliseconds.
const STEP_MS: i64 = 6_000;
/// How long a fault may affect a drain that follows it; microseconds.
const BEFORE_DRAIN_US: i64 = 2_000_000;
/// Number of waits from which their 99th percentile means something.
const P99_OF: usize = 200;

/// Each epoch was started once, by one worker.
pub(super) fn one_takeover_per_epoch(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for session in &history.sessions {
        let runs = recovery::runs(session);
        for pair in runs.windows(2).filter(|pair| pair[0].epoch >= pair[1].epoch) {
            let what = format!(
                "{} started epoch {} after {} had started {}",
                pair[1].worker, pair[1].epoch, pair[0].worker, pair[0].epoch
            );
            violations.push(Violation::new(Invariant::I4, &session.id, what));
        }
    }
    violations
}

/// A loop that had not released its session was replaced only if its worker or Postgres was down or unreachable.
pub(super) fn only_unreachable_workers_lose_sessions(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for session in &history.sessions {
        let runs = recovery::runs(session);
        for pair in runs.windows(2).filter(|pair| !pair[0].released) {
            let (old, new) = (&pair[0], &pair[1]);
            let has_cause = history.injected(old.began_us - EFFECT_US, new.began_us, |injection| {
                let from_us = injection.began_us;
                from_us <= new.began_us && silences(injection, &old.worker)
            }) || was_affected(history, old, new);
            if !has_cause {
                let what =
                    format!("{} took epoch {} from {}, which was healthy", new.worker, new.epoch, old.worker);
                violations.push(Violation::new(Invariant::I4, &session.id, what));
            }
        }
    }
    violations
}

fn was_affected(history: &History, old: &Run, new: &Run) -> bool {
    history.injections.iter().any(|injection| {
        injection.began_us <= new.began_us
            && injection.ended_us + EFFECT_US >= old.began_us
            && silences(injection, &old.worker)
    })
}

/// Returns whether a fault can keep a worker from renewing its lease, or makes it release its sessions.
fn silences(injection: &Injection, worker: &str) -> bool {
    let is_of_worker = injection.target.split(['>', ' ']).any(|word| word == worker);
    let is_link = injection.target.contains('>') && !injection.target.contains(' ');
    let is_of_postgres = injection.target.ends_with("postgres");
    injection.kind == STALL
        || (is_of_worker && !is_link)
        || (is_of_worker && is_of_postgres)
        || injection.target == "postgres"
}

/// The light tenants wait for a worker at most one step longer than the heavy tenant: in the median, and in the 99th
/// percentile if there are enough waits.
pub(super) fn light_tenants_are_served(history: &History) -> Vec<Violation> {
    let (heavy, light) = (recovery::waits_ms(history, true), recovery::waits_ms(history, false));
    let mut violations = vec![];
    for (hundredths, least) in [(50, 1), (99, P99_OF)] {
        let at = |waits: &[i64]| recovery::percentile(waits, hundredths).filter(|_| waits.len() >= least);
        let (Some(heavy_ms), Some(light_ms)) = (at(&heavy), at(&light)) else { continue };
        if light_ms > heavy_ms + STEP_MS {
            let what = format!(
                "the p{hundredths} wait of the light tenants is {light_ms} ms, of the heavy tenant {heavy_ms} ms"
            );
            violations.push(Violation::new(Invariant::I11, "all", what));
        }
    }
    violations
}

/// A drained worker exited in time and with code 0. Its sessions continued at once, unless another fault affected them.
pub(super) fn drains_are_quick(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for drain in history.injections.iter().filter(|injection| injection.exit.is_some()) {
        let Some(exit) = drain.exit else { continue };
        let mut blame = |subject: &str, what| violations.push(Violation::new(Invariant::I14, subject, what));
        let is_alone = |from_us, to_us| {
            !history
                .injected(from_us - EFFECT_US, to_us, |other| other != drain && other.kind != "wake storm")
        };
        match exit.after_ms {
            Some(ms) if ms <= DRAIN_MS && exit.code == Some(0) => {}
            Some(ms) if ms <= DRAIN_MS => blame(&drain.target, format!("exited with code {:?}", exit.code)),
            Some(ms) => blame(&drain.target, format!("took {ms} ms to exit")),
            None => blame(&drain.target, "did not exit after SIGTERM".to_owned()),
        }
        for session in &history.sessions {
            let Some((old, new)) = recovery::handed_over(session, drain) else { continue };
            if !is_alone(drain.began_us, new.began_us) {
                continue;
            }
            let paused_ms = (new.began_us - old.last_us) / 1_000;
            if paused_ms > HAND_OVER_MS {
                blame(&session.id, format!("paused for {paused_ms} ms when {} was drained", drain.target));
            }
            if new.lost_parts > 0 {
                let what =
                    format!("lost {} parts of a step when {} was drained", new.lost_parts, drain.target);
                blame(&session.id, what);
            }
        }
    }
    violations
}

/// A drained worker released all its sessions, so no session waited for its lease to expire. The only exception is a
/// worker that could not reach its servers.
pub(super) fn drains_release_sessions(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for drain in history.injections.iter().filter(|injection| injection.exit.is_some()) {
        let is_excused = |old: &Run| {
            let is_lost = |other: &Injection| other != drain && silences(other, &drain.target);
            let hinders = |other: &Injection| {
                let is_near = other.target.split(['>', ' ']).any(|word| word == drain.target);
                other != drain && (is_near || other.target == "sandbox")
            };
            history.injected(old.began_us, drain.ended_us, is_lost)
                || history.injected(drain.began_us - BEFORE_DRAIN_US, drain.ended_us, hinders)
        };
        for session in &history.sessions {
            let left = recovery::dropped(session, drain).filter(|(old, _)| !is_excused(old));
            if let Some((old, new)) = left {
                let what = format!(
                    "{} exited without releasing epoch {}; {} continued {} ms later",
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
