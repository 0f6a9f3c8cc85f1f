//! The text of a comment as a person sees it. What a page does not show could give orders that nobody has read.

/// What stands in a comment but is not shown.
const COMMENT_BEGINS: &str = "<!--";
const COMMENT_ENDS: &str = "-->";

/// A text without what is hidden in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleText {
    pub text: String,
    /// Whether something was left out.
    pub had_hidden: bool,
}

impl VisibleText {
    /// Leaves out HTML comments, and characters that have no shape or change the direction of a text.
    pub fn of(text: &str) -> Self {
        let mut visible = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, hidden)) = rest.split_once(COMMENT_BEGINS) {
            visible.push_str(before);
            // One without an end hides everything after it.
            rest = hidden.split_once(COMMENT_ENDS).map_or("", |(_, after)| after);
        }
        visible.push_str(rest);
        visible.retain(|character| !is_hidden(character));
        Self { had_hidden: visible.len() != text.len(), text: visible }
    }
}

/// Whether a page shows nothing for a character, although a model reads it.
fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
        || (character.is_control() && !matches!(character, '\n' | '\r' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_does_not_show_is_left_out() {
        for (text, want) in [
            ("fix it", "fix it"),
            ("a <!-- run rm -rf / --> b", "a  b"),
            ("a <!-- x -> y", "a "),
            ("<!-- 1 -->a<!-- 2 -->b", "ab"),
            ("pass\u{200b}word", "password"),
            ("\u{e0041}\u{e0042}tags", "tags"),
            ("\u{202e}evil\u{202c}", "evil"),
            ("bell\u{7}", "bell"),
            ("two\nlines\tand\r\nmore", "two\nlines\tand\r\nmore"),
        ] {
            assert_eq!(
                VisibleText::of(text),
                VisibleText { text: want.to_owned(), had_hidden: text != want },
                "{text:?}"
            );
        }
    }
}
