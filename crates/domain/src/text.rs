//! Text from outside: cleaned of what Postgres cannot hold, cut where a character ends.

use std::borrow::Cow;

/// Replaces NUL by U+FFFD: Postgres' text cannot hold it.
pub fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Gives the longest beginning of `text` that has at most `bytes_max` bytes and ends with a whole character.
pub fn head(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Gives the longest end of `text` that has at most `bytes_max` bytes and begins with a whole character.
pub fn tail(text: &str, bytes_max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_fall_between_characters() {
        for (text, max, want_head, want_tail) in [
            ("abc", 5, "abc", "abc"),
            ("aé", 2, "a", "é"),
            ("éa", 2, "é", "a"),
            ("€", 2, "", ""),
            ("", 0, "", ""),
        ] {
            assert_eq!((head(text, max), tail(text, max)), (want_head, want_tail), "{text:?} {max}");
        }
        assert_eq!(without_nul("a\0b"), "a\u{fffd}b");
    }
}
