//! Times derived from a history: the owner of a session, the wait of prompts, and the time until another worker
//! continues after a crash.

use super::{
    history::{History, Injection},
    inject::fault::Kind,
};
use testkit::dump::Session;

/// The run of one loop of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub epoch: i64,
    pub worker: String,
    /// When it first wrote; microseconds.
    pub began_us: i64,
    /// When it last wrote; microseconds.
    pub last_us: i64,
    /// Whether it ended by going idle.
    pub ended: bool,
    /// Whether its last event released the session: idle, parked, or handed over.
    pub released: bool,
    /// Whether it released the session because the session waits for an answer.
    pub waits: bool,
    /// Parts that it removed: those that the previous loop had started and not stored.
    pub lost_parts: usize,
}

/// The events that end the run of a loop; another loop may start at once.
const RELEASES: [&str; 3] = ["session.idle", "flotilla.session.waiting", "flotilla.loop.handed_over"];

/// Lists the loops of a session that wrote an event, in the order of their start.
pub fn runs(session: &Session) -> Vec<Run> {
    let mut runs: Vec<Run> = vec![];
    for event in &session.events {
        let at_us = event.at_ms * 1_000;
        if event.kind == "flotilla.loop.started" {
            runs.push(Run {
                epoch: event.epoch,
                worker: event.properties["worker"].as_str().unwrap_or_default().to_owned(),
                began_us: at_us,
                last_us: at_us,
                ended: false,
                released: false,
                waits: false,
                lost_parts: 0,
            });
        // Later events of the same epoch come from other processes: an answer, or the progress of a child.
        } else if let Some(run) = runs.last_mut().filter(|run| run.epoch == event.epoch && !run.released) {
            run.last_us = at_us;
            run.ended = event.kind == "session.idle";
            run.waits = event.kind == "flotilla.session.waiting";
            run.released = RELEASES.contains(&event.kind.as_str());
            run.lost_parts += usize::from(event.kind == "message.part.removed");
        }
    }
    runs
}

/// Finds the loop that a drained worker handed over, and its successor.
pub fn handed_over(session: &Session, drain: &Injection) -> Option<(Run, Run)> {
    let runs = runs(session);
    let pair = runs.windows(2).find(|pair| {
        let old = &pair[0];
        old.worker == drain.target
            && !old.ended
            && !old.waits
            && old.last_us >= drain.began_us
            && old.began_us <= drain.ended_us
    })?;
    Some((pair[0].clone(), pair[1].clone()))
}

/// Finds the loop that a drained worker did not release, and its successor.
pub fn dropped(session: &Session, drain: &Injection) -> Option<(Run, Run)> {
    let runs = runs(session);
    let pair = runs.windows(2).find(|pair| {
        let (old, new) = (&pair[0], &pair[1]);
        old.worker == drain.target
            && !old.released
            && old.began_us <= drain.ended_us
            && new.began_us >= drain.began_us
    })?;
    Some((pair[0].clone(), pair[1].clone()))
}

/// Measures from each kill of a worker to the first event of the next loop of its sessions; milliseconds, sorted.
pub fn after_kills_ms(history: &History) -> Vec<i64> {
    let kills = history.injections.iter().filter(|injection| injection.kind == Kind::KillWorker.as_str());
    let mut times = vec![];
    for kill in kills {
        for session in &history.sessions {
            let runs = runs(session);
            let killed = runs.windows(2).find(|pair| {
                let (old, new) = (&pair[0], &pair[1]);
                old.worker == kill.target
                    && !old.released
                    && old.began_us <= kill.began_us
                    && new.began_us >= kill.began_us
            });
            times.extend(killed.map(|pair| (pair[1].began_us - kill.began_us) / 1_000));
        }
    }
    times.sort_unstable();
    times
}

/// Measures from the answer to a prompt of an idle session to the first event of its loop; milliseconds, sorted.
pub fn waits_ms(history: &History, of_heavy: bool) -> Vec<i64> {
    let mut waits = vec![];
    for prompt in history.prompts.iter().filter(|prompt| (prompt.tenant == 0) == of_heavy) {
        let (Some(accepted_us), Some(session)) = (prompt.accepted_us, history.session(&prompt.session_id))
        else {
            continue;
        };
        let message = prompt.answers.first();
        let events = &session.events;
        let prompt_at = events.iter().position(|event| {
            event.kind == "message.updated"
                && event.properties["info"]["id"].as_str() == message.map(String::as_str)
        });
        let Some(prompt_at) = prompt_at else { continue };
        // In a busy session the prompt does not wait for a worker.
        let last = events[..prompt_at]
            .iter()
            .rev()
            .find(|event| event.kind == "session.idle" || event.kind == "flotilla.loop.started");
        if last.is_some_and(|event| event.kind != "session.idle") {
            continue;
        }
        let started = events[prompt_at..].iter().find(|event| event.kind == "flotilla.loop.started");
        waits.extend(started.map(|event| (event.at_ms - accepted_us / 1_000).max(0)));
    }
    waits.sort_unstable();
    waits
}

/// Returns the percentile of a sorted list; `None` if it is empty.
pub fn percentile(sorted: &[i64], hundredths: usize) -> Option<i64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((sorted.len() * hundredths / 100).min(last)).copied()
}
