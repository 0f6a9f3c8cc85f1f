//! The report of a run, for people.

use super::{check::promises, history::STALL, inject::injector, recovery, run::Outcome};

/// Number of violations that are listed; all of them are counted.
const LISTED_MAX: usize = 40;

/// Writes the report of a run.
pub fn text(outcome: &Outcome, seed: u64, replay: &str) -> String {
    let (history, mut text) = (&outcome.history, String::new());
    let total = history.injections.iter().filter(|injection| injection.kind != STALL).count();
    let mut line = |line: String| text.push_str(&(line + "\n"));
    line(format!(
        "seed {seed}: {total} faults, {} sessions, {} turns",
        outcome.counts.sessions, outcome.counts.turns
    ));
    line(format!(
        "recorded: {} prompts, {} aborts, {} events and {} fragments by {} subscribers ({} connections), {} effects, {} model calls",
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
    let killed: usize = history.poisons.iter().map(|poison| poison.killed.len()).sum();
    line(format!(
        "also: {subtasks} subtasks, {} answers of people, {} poisons that killed {killed} workers",
        history.answers.len(),
        history.poisons.len(),
    ));
    line(String::new());
    for (kind, count) in injector::count(&history.injections) {
        line(format!(
            "  {kind:<45} {count:>6}   at most {} of them cause a violation, with 95 % confidence",
            bound(count)
        ));
    }
    line(format!(
        "  {:<45} {total:>6}   at most {} of them cause a violation, with 95 % confidence",
        "all",
        bound(total)
    ));
    line(String::new());
    line(times(
        "from kill -9 of a worker to the next event of its sessions",
        &recovery::after_kills_ms(history),
    ));
    line(times("from a prompt to its loop, light tenants", &recovery::waits_ms(history, false)));
    line(times("from a prompt to its loop, the heavy tenant", &recovery::waits_ms(history, true)));
    let settled = history.final_state.settled_us.map_or("never".to_owned(), |at| {
        format!("after {} ms", (at - history.final_state.repaired_us) / 1_000)
    });
    line(format!("settled after the last fault: {settled}"));
    line(String::new());
    if outcome.violations.is_empty() {
        line("violations: none".to_owned());
        return text;
    }
    let counts = promises::count(&outcome.violations);
    let counts: Vec<_> = counts.iter().map(|(invariant, count)| format!("{invariant:?} {count}")).collect();
    line(format!("violations: {} ({})", outcome.violations.len(), counts.join(", ")));
    for violation in outcome.violations.iter().take(LISTED_MAX) {
        line(format!("  {:?} {}: {}", violation.invariant, violation.subject, violation.description));
    }
    if let Some(directory) = &outcome.directory {
        line(format!("logs and history.json: {}", directory.display()));
    }
    line(format!("replay: {replay}"));
    text
}

/// Rule of three: after n trials without a failure, at most 3/n fail, with 95 % confidence. This holds only for a run
/// without violations.
fn bound(trials: usize) -> String {
    let percent = match u32::try_from(trials) {
        Ok(0) | Err(_) => 100.0,
        Ok(trials) => (300.0 / f64::from(trials)).min(100.0),
    };
    format!("{percent:.2} %")
}

fn times(name: &str, sorted_ms: &[i64]) -> String {
    let at = |hundredths| recovery::percentile(sorted_ms, hundredths).unwrap_or_default();
    format!(
        "{name}: p50 {} ms, p99 {} ms, longest {} ms ({} times)",
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
    fn the_rule_of_three_bounds_the_failure_rate() {
        assert_eq!(
            (bound(0), bound(2), bound(300), bound(1_000)),
            ("100.00 %".into(), "100.00 %".into(), "1.00 %".into(), "0.30 %".into())
        );
    }
}
