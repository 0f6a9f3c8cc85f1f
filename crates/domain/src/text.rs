//! Cleans text from outside of characters that Postgres cannot hold, cuts text at character boundaries, and writes bytes and words of a shell as text.

use std::borrow::Cow;

/// Replaces NUL by U+FFFD: Postgres' text cannot hold it.
pub fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Returns a text as one word of a shell, whatever it contains.
pub fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the longest beginning of `text` that has at most `bytes_max` bytes and ends with a whole character.
pub fn head(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Returns the longest end of `text` that has at most `bytes_max` bytes and begins with a whole character.
pub fn tail(text: &str, bytes_max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..]
}

/// Returns the bytes of a percent-encoded text: `%20` is a space. `None` for a `%` without two hexadecimal digits.
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let digits = |at: usize| text.as_bytes().get(at + 1..at + 3);
    let is_escape = |at| digits(at).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let is_valid = text.match_indices('%').all(|(at, _)| is_escape(at));
    is_valid.then(|| percent_encoding::percent_decode_str(text).collect())
}

/// Returns bytes percent-encoded, all but ASCII letters and digits.
pub fn percent_encode(bytes: &[u8]) -> String {
    percent_encoding::percent_encode(bytes, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Returns the length of a value as JSON, in bytes; 0 for a value that is not JSON. Nothing is kept of the JSON.
pub fn json_bytes(value: &impl serde::Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_or(0, |()| count.0)
}

/// Writes bytes as lowercase hexadecimal digits, two for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads what [`hex`] has written.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// Whether a text is a SHA-256 as [`hex`] writes it.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether `text` is the full name of an object of git, SHA-1 or SHA-256, in lower case.
pub fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether `text` fits a pattern of `*` (any text) and `?` (any one character), as a whole.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Greedy with one step back to the last star: linear in practice, quadratic at worst, never exponential.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    (p, t) = (at + 1, from + 1);
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
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
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        assert_eq!(unhex("000aff"), Some(vec![0, 10, 255]));
        for text in ["0", "0g", "+1", "é"] {
            assert_eq!(unhex(text), None, "{text}");
        }
        assert_eq!(json_bytes(&serde_json::json!({"a": ["é", 1]})), r#"{"a":["é",1]}"#.len());
        for (text, want) in [(hex(&[171; 32]), true), (hex(&[171; 31]), false), ("A".repeat(64), false)] {
            assert_eq!(is_sha256(&text), want, "{text}");
        }
    }

    #[test]
    fn addresses_are_read() {
        for (text, want) in
            [("a%20b", Some("a b")), ("%C3%A9", Some("é")), ("%2", None), ("%zz", None), ("%+1", None)]
        {
            assert_eq!(percent_decode(text).as_deref(), want.map(str::as_bytes), "{text}");
        }
    }
}
