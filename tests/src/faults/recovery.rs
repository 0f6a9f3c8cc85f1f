//! Times derived from a history: the owner of a session, the wait of prompts, and the time until another worker
//! continues after a crash.

use super::{
    fault::Kind,
    history::{History, Injection},
};
use testkit::dump::Session;

/// One loop's time with a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its number.
    pub epoch: i64,
    /// The worker's name.
    pub worker: String,
    /// When it wrote first; microseconds.
    pub began_us: i64,
    /// When it wrote last; microseconds.
    pub last_us: i64,
    /// Whether it ended by going idle.
    pub ended: bool,
    /// Whether it said last that it lets go: idle, parked, or handed over.
    pub let_go: bool,
    /// Whether it let go because the session waits for somebody.
    pub waits: bool,
    /// Parts that it took back: what the loop before had begun and not stored.
    pub lost_parts: usize,
}

/// The last words of a loop after which another one may begin at once.
const LETS_GO: [&str; 3] = ["session.idle", "flotilla.session.waiting", "flotilla.loop.handed_over"];

/// The loops of a session that wrote something, in the order in which they began.
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
                let_go: false,
                waits: false,
                lost_parts: 0,
            });
        // Later events come from others: an answer, or a child's progress.
        } else if let Some(run) = runs.last_mut().filter(|run| run.epoch == event.epoch && !run.let_go) {
            run.last_us = at_us;
            run.ended = event.kind == "session.idle";
            run.waits = event.kind == "flotilla.session.waiting";
            run.let_go = LETS_GO.contains(&event.kind.as_str());
            run.lost_parts += usize::from(event.kind == "message.part.removed");
        }
    }
    runs
}

/// The loop that a drained worker gave up, and the one that followed it.
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

/// The loop that a drained worker left without a word, and the one that followed it.
pub fn dropped(session: &Session, drain: &Injection) -> Option<(Run, Run)> {
    let runs = runs(session);
    let pair = runs.windows(2).find(|pair| {
        let (old, new) = (&pair[0], &pair[1]);
        old.worker == drain.target
            && !old.let_go
            && old.began_us <= drain.ended_us
            && new.began_us >= drain.began_us
    })?;
    Some((pair[0].clone(), pair[1].clone()))
}

/// From each kill of a worker to the first word of the next loop of a session that it ran; milliseconds, sorted.
pub fn after_kills_ms(history: &History) -> Vec<i64> {
    let kills = history.injections.iter().filter(|injection| injection.kind == Kind::KillWorker.as_str());
    let mut times = vec![];
    for kill in kills {
        for session in &history.sessions {
            let runs = runs(session);
            let struck = runs.windows(2).find(|pair| {
                let (old, new) = (&pair[0], &pair[1]);
                old.worker == kill.target
                    && !old.let_go
                    && old.began_us <= kill.began_us
                    && new.began_us >= kill.began_us
            });
            times.extend(struck.map(|pair| (pair[1].began_us - kill.began_us) / 1_000));
        }
    }
    times.sort_unstable();
    times
}

/// From the answer to a prompt of an idle session to the first word of its loop; milliseconds, sorted.
pub fn waits_ms(history: &History, of_heavy: bool) -> Vec<i64> {
    let mut waits = vec![];
    for prompt in history.prompts.iter().filter(|prompt| (prompt.tenant == 0) == of_heavy) {
        let (Some(accepted_us), Some(session)) = (prompt.accepted_us, history.session(&prompt.session_id))
        else {
            continue;
        };
        let message = prompt.answers.first();
        let events = &session.events;
        let asked = events.iter().position(|event| {
            event.kind == "message.updated"
                && event.properties["info"]["id"].as_str() == message.map(String::as_str)
        });
        let Some(asked) = asked else { continue };
        // The loop of a busy session takes it when it comes to it.
        let last = events[..asked]
            .iter()
            .rev()
            .find(|event| event.kind == "session.idle" || event.kind == "flotilla.loop.started");
        if last.is_some_and(|event| event.kind != "session.idle") {
            continue;
        }
        let begun = events[asked..].iter().find(|event| event.kind == "flotilla.loop.started");
        waits.extend(begun.map(|event| (event.at_ms - accepted_us / 1_000).max(0)));
    }
    waits.sort_unstable();
    waits
}

/// The value below which so many hundredths of a sorted list lie.
pub fn percentile(sorted: &[i64], hundredths: usize) -> Option<i64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((sorted.len() * hundredths / 100).min(last)).copied()
}
