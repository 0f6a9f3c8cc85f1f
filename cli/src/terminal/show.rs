//! Words for people: states, tokens, money, diffs.

use crate::terminal::paint::{Paint, harmless};
use rpc::v1::{FileStat, GetSessionDiffResponse, Session, SessionClass, SessionState, Tokens, TurnOutcome};
use std::time::{SystemTime, UNIX_EPOCH};

/// Hexadecimal or random characters of an id that are enough to recognize it.
const SHORT_ID_CHARS: usize = 10;

/// Returns the state of a session in one word, with the reason while it waits.
pub(crate) fn state(session: &Session) -> String {
    match session.state() {
        SessionState::Idle => outcome(session.last_outcome()).to_owned(),
        SessionState::Queued => format!("queued ({})", session.queue_position),
        SessionState::Running => "running".to_owned(),
        SessionState::Waiting => format!("waiting: {}", session.waiting_reason),
        SessionState::Quarantined => "quarantined".to_owned(),
        SessionState::Unspecified => "unknown".to_owned(),
    }
}

/// Returns the word for a state in `--json` and `--state`.
pub(crate) fn state_word(state: SessionState) -> String {
    state.as_str_name().trim_start_matches("SESSION_STATE_").to_lowercase()
}

/// Returns the word for a class in `--class`.
pub(crate) fn class_word(class: SessionClass) -> String {
    class.as_str_name().trim_start_matches("SESSION_CLASS_").to_lowercase()
}

/// Colours `text` by the state of `session`.
pub(crate) fn paint_state(session: &Session, text: &str, paint: Paint) -> String {
    match session.state() {
        SessionState::Idle => match session.last_outcome() {
            TurnOutcome::Done => paint.green(text),
            TurnOutcome::Failed | TurnOutcome::Aborted => paint.red(text),
            TurnOutcome::NeedsHuman => paint.yellow(text),
            TurnOutcome::Unspecified => paint.dim(text),
        },
        SessionState::Queued | SessionState::Running => paint.cyan(text),
        SessionState::Waiting => paint.yellow(text),
        SessionState::Quarantined | SessionState::Unspecified => paint.red(text),
    }
}

/// Formats an age in its largest unit: "3 h ago".
pub(crate) fn age(ms: i64) -> String {
    match ms / 1_000 {
        // Clocks of two machines differ: a time in the future counts as now.
        ..5 => "just now".to_owned(),
        _ => format!("{} ago", span(ms)),
    }
}

/// Formats the age of a time at `now_ms`; a dash for 0, which stands for a time that has not come.
pub(crate) fn age_at(now_ms: i64, at_ms: i64) -> String {
    if at_ms == 0 { "–".to_owned() } else { age(now_ms.saturating_sub(at_ms)) }
}

/// Formats a duration in its largest unit: "3 h".
pub(crate) fn span(ms: i64) -> String {
    match ms / 1_000 {
        seconds @ ..60 => format!("{} s", seconds.max(0)),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Formats an estimated time: "in about 40 s".
pub(crate) fn until(at_ms: i64, now_ms: i64) -> String {
    match at_ms.saturating_sub(now_ms) {
        ..1_000 => "at any moment".to_owned(),
        left => format!("in about {}", span(left)),
    }
}

/// Returns the current time; milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Says who can end a quarantine, and how.
pub(crate) fn release_command(session_id: &str) -> String {
    format!("an operator can release it: flotilla admin release {session_id}")
}

/// Returns the word for a turn's outcome: the `outcome` of its `session.idle` event.
pub(crate) fn outcome(outcome: TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Done => "done",
        TurnOutcome::Failed => "failed",
        TurnOutcome::Aborted => "aborted",
        TurnOutcome::NeedsHuman => "needs_human",
        TurnOutcome::Unspecified => "idle",
    }
}

/// Formats a usage and its cost in 10^-12 US dollars: "1,234 tokens in, 56 out, $0.0123".
pub(crate) fn usage(tokens: Tokens, cost_usd_picos: i64) -> String {
    let Tokens { input, output, reasoning, cache_read, cache_write } = tokens;
    let (read, written) = (input + cache_read + cache_write, output + reasoning);
    format!("{} tokens in, {} out, {}", thousands(read), thousands(written), dollars(cost_usd_picos))
}

/// Formats an amount of 10^-12 US dollars, cut to a hundredth of a cent.
pub(crate) fn dollars(picos: i64) -> String {
    let hundredths_of_cents = picos.max(0) / 100_000_000;
    format!("${}.{:04}", hundredths_of_cents / 10_000, hundredths_of_cents % 10_000)
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a number of bytes, rounded down: `3 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(factor, _)| bytes >= *factor);
    unit.map_or_else(|| format!("{bytes} B"), |(factor, name)| format!("{} {name}", bytes / factor))
}

/// Returns the characters of a session's id that name its branch.
pub(crate) fn short_id(session_id: &str) -> String {
    let tail = session_id.strip_prefix("ses_").unwrap_or(session_id);
    // The end of an id is random; its beginning is the time, which neighbouring sessions share.
    let skip = tail.chars().count().saturating_sub(SHORT_ID_CHARS);
    tail.chars().skip(skip).collect()
}

/// Returns a patch in colours.
pub(crate) fn patch(patch: &str, paint: Paint) -> String {
    patch.lines().map(|line| format!("{}\n", diff_line(line, paint))).collect()
}

/// Returns a line of a patch in its colour.
pub(crate) fn diff_line(line: &str, paint: Paint) -> String {
    let clean = harmless(line);
    let is_header = ["diff ", "index ", "--- ", "+++ "].iter().any(|prefix| clean.starts_with(prefix));
    match clean.chars().next() {
        _ if is_header => paint.bold(&clean),
        Some('+') => paint.green(&clean),
        Some('-') => paint.red(&clean),
        Some('@') => paint.cyan(&clean),
        _ => clean,
    }
}

/// Returns one line per changed file and a total, then the diff; empty if nothing changed.
pub(crate) fn diff(answer: &GetSessionDiffResponse, paint: Paint) -> String {
    let mut text = String::new();
    let width = answer.files.iter().map(|file| file.path.chars().count()).max().unwrap_or_default();
    let (mut additions, mut deletions) = (0_u64, 0_u64);
    for FileStat { path, additions: added, deletions: deleted } in &answer.files {
        additions += u64::from(*added);
        deletions += u64::from(*deleted);
        let counts = format!("{} {}", paint.green(&format!("+{added}")), paint.red(&format!("-{deleted}")));
        text.push_str(&format!(" {:width$}  {counts}\n", harmless(path)));
    }
    if !answer.files.is_empty() {
        let files = if answer.files.len() == 1 { "file" } else { "files" };
        text.push_str(&format!(" {} {files} changed, +{additions} -{deletions}\n\n", answer.files.len()));
    }
    text.push_str(&patch(&answer.patch, paint));
    for file in &answer.left_out {
        text.push_str(&paint.yellow(&format!("left out: {}\n", harmless(file))));
    }
    if answer.truncated {
        text.push_str(&paint.yellow("… the diff is longer; `flotilla checkout` gives all of it\n"));
    }
    text
}

/// The end of a sentence about a result: what of the session's work it lacks.
pub(crate) fn lacks(left_out: &[String]) -> String {
    let lacks: Vec<String> = left_out.iter().map(|text| harmless(text)).collect();
    if lacks.is_empty() { String::new() } else { format!(", but not: {}", lacks.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(dollars(12_345_600_000), "$0.0123");
        assert_eq!(dollars(1_500_000_000_000), "$1.5000");
        assert_eq!([thousands(0), thousands(999), thousands(1_234_567)], ["0", "999", "1,234,567"]);
        let ages = [-9_000, 4_999, 59_999, 60_000, 3_599_999, 172_799_999, 172_800_000].map(age);
        assert_eq!(
            ages,
            ["just now", "just now", "59 s ago", "1 min ago", "59 min ago", "47 h ago", "2 days ago"]
        );
        assert_eq!([-9_000, 400, 40_400, 61_000].map(span), ["0 s", "0 s", "40 s", "1 min"]);
        assert_eq!([999, 2_000].map(|at| until(at, 0)), ["at any moment", "in about 2 s"]);
        assert_eq!(short_id("ses_1ffcce3d00015Oy45kUL559D5O"), "y45kUL559D5O"[2..]);
    }

    #[test]
    fn a_diff_begins_with_its_files() {
        let answer = GetSessionDiffResponse {
            patch: "diff --git a/x b/x\n@@ -1 +1 @@\n-old\n+new\n".to_owned(),
            truncated: false,
            files: vec![FileStat { path: "x".to_owned(), additions: 1, deletions: 1 }],
            left_out: vec!["data\u{1b}.bin, 8.0 GiB".to_owned()],
        };
        assert_eq!(
            diff(&answer, Paint::Plain),
            " x  +1 -1\n 1 file changed, +1 -1\n\ndiff --git a/x b/x\n@@ -1 +1 @@\n-old\n+new\nleft out: data�.bin, 8.0 GiB\n"
        );
    }
}
