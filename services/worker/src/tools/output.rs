//! Keeps what a tool says within what a model should read.

use super::Output;
use crate::clean;
use domain::{limits, text};

/// Cuts an answer to the longest length, at a line's end, and says so. Cleans it of what Postgres cannot hold.
pub(crate) fn bounded(mut output: Output) -> Output {
    output.text = text::without_nul(&output.text).into_owned();
    output.metadata = clean::map(output.metadata);
    output.title = text::without_nul(text::head(&output.title, TITLE_BYTES_MAX)).into_owned();
    if let Some(kept) = kept(&output.text) {
        let (kept, lines) = (kept.to_owned(), output.text.lines().count());
        output.metadata.insert("truncated".to_owned(), true.into());
        output.text = format!(
            "{kept}\n\n(Cut: the whole answer has {lines} lines and {} bytes. Ask for less, or for another part.)",
            output.text.len()
        );
    }
    output
}

/// Titles are one line in a list.
const TITLE_BYTES_MAX: usize = 200;

/// What is kept of a text that is too long.
fn kept(full: &str) -> Option<&str> {
    let by_lines =
        full.match_indices('\n').nth(limits::TOOL_OUTPUT_LINES_MAX - 1).map(|(end, _)| &full[..end]);
    let kept = by_lines.unwrap_or(full);
    if kept.len() <= limits::TOOL_OUTPUT_BYTES_MAX {
        return by_lines;
    }
    let cut = text::head(kept, limits::TOOL_OUTPUT_BYTES_MAX);
    Some(cut.rfind('\n').map_or(cut, |end| &cut[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(text: String) -> String {
        bounded(Output { text, ..Output::default() }).text
    }

    #[test]
    fn short_answers_stay_as_they_are() {
        assert_eq!(text_of("a\nb\n".to_owned()), "a\nb\n");
        assert_eq!(text_of("a\0b".to_owned()), "a\u{fffd}b");
    }

    #[test]
    fn long_answers_are_cut_at_a_line_and_say_so() {
        let lines = text_of("line\n".repeat(limits::TOOL_OUTPUT_LINES_MAX + 5));
        assert!(lines.contains("(Cut: the whole answer has 2005 lines"), "{}", text::tail(&lines, 200));
        let bytes = text_of(format!("{}\n{}", "é".repeat(10_000), "x".repeat(60_000)));
        assert!(
            bytes.starts_with(&"é".repeat(10_000)) && !bytes.contains('x'.to_string().repeat(10).as_str())
        );
        let one = text_of("y".repeat(200_000));
        assert!(one.len() < limits::TOOL_OUTPUT_BYTES_MAX + 200);
    }
}
