//! What a run tells people.

use super::{Outcome, check, inject, recovery};

/// Violations that are shown; all of them are counted.
const SHOWN_MAX: usize = 40;

/// The report of a run with this seed.
pub fn text(outcome: &Outcome, seed: u64, replay: &str) -> String {
    let (history, mut text) = (&outcome.history, String::new());
    let total = history.injections.iter().filter(|injection| injection.kind != super::observe::STALL).count();
    let mut line = |line: String| text.push_str(&(line + "\n"));
    line(format!("seed {seed}: {total} faults, {} sessions, {} turns", outcome.counts.0, outcome.counts.1));
    line(format!(
        "seen: {} prompts, {} aborts, {} events and {} fragments by {} subscribers ({} connections), {} effects, {} model calls",
        history.prompts.len(),
        history.aborts.len(),
        history.transcripts.iter().map(|transcript| transcript.events.len()).sum::<usize>(),
        history.transcripts.iter().map(|transcript| transcript.deltas.len()).sum::<usize>(),
        history.transcripts.len(),
        history.transcripts.iter().map(|transcript| transcript.connections).sum::<u32>(),
        history.effects.len(),
        history.requests.len(),
    ));
    let subtasks = history.sessions.iter().filter(|session| session.parent_id.is_some()).count();
    let ended: usize = history.poisons.iter().map(|poison| poison.ended.len()).sum();
    line(format!(
        "on the way: {subtasks} subtasks, {} answers of people, {} poisons that ended {ended} workers",
        history.answers.len(),
        history.poisons.len(),
    ));
    line(String::new());
    for (kind, count) in inject::count(&history.injections) {
        line(format!("  {kind:<45} {count:>6}   at most {} of them may do harm, with 95 %", bound(count)));
    }
    line(format!("  {:<45} {total:>6}   at most {} of them may do harm, with 95 %", "all", bound(total)));
    line(String::new());
    line(times(
        "from kill -9 of a worker to the next word of its sessions",
        &recovery::after_kills_ms(history),
    ));
    line(times("from a prompt to its loop, light tenants", &recovery::waits_ms(history, false)));
    line(times("from a prompt to its loop, the heavy tenant", &recovery::waits_ms(history, true)));
    let rest = history
        .end
        .settled_us
        .map_or("never".to_owned(), |at| format!("after {} ms", (at - history.end.mended_us) / 1_000));
    line(format!("at rest after the last fault: {rest}"));
    line(String::new());
    if outcome.violations.is_empty() {
        line("violations: none".to_owned());
        return text;
    }
    let counts = check::count(&outcome.violations);
    let counts: Vec<_> = counts.iter().map(|(invariant, count)| format!("{invariant:?} {count}")).collect();
    line(format!("violations: {} ({})", outcome.violations.len(), counts.join(", ")));
    for violation in outcome.violations.iter().take(SHOWN_MAX) {
        line(format!("  {:?} {}: {}", violation.invariant, violation.whose, violation.what));
    }
    if let Some(directory) = &outcome.directory {
        line(format!("logs and history.json: {}", directory.display()));
    }
    line(format!("again: {replay}"));
    text
}

/// Rule of three: no failure in n trials says that at most 3/n fail, with 95 %. Only true of a run without violations.
fn bound(trials: usize) -> String {
    let percent = match u32::try_from(trials) {
        Ok(0) | Err(_) => 100.0,
        Ok(trials) => (300.0 / f64::from(trials)).min(100.0),
    };
    format!("{percent:.2} %")
}

fn times(what: &str, sorted_ms: &[i64]) -> String {
    let at = |hundredths| recovery::percentile(sorted_ms, hundredths).unwrap_or_default();
    format!(
        "{what}: p50 {} ms, p99 {} ms, longest {} ms ({} times)",
        at(50),
        at(99),
        at(100),
        sorted_ms.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_of_three_bounds_what_was_not_seen() {
        assert_eq!(
            (bound(0), bound(2), bound(300), bound(1_000)),
            ("100.00 %".into(), "100.00 %".into(), "1.00 %".into(), "0.30 %".into())
        );
    }
}
