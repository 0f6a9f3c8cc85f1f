//! Reads JSON from providers slightly more leniently than the standard. An unpaired surrogate becomes a replacement
//! character instead of an error, and an impossible count is treated as missing.

use serde_json::Value;

/// Tokens in one count of a provider's usage: far above any context. A larger number is a mistake and counts as not given.
const MODEL_USAGE_TOKENS_MAX: u64 = 1_000_000_000;

/// Replaces an unpaired surrogate.
const REPLACEMENT: &str = "\\ufffd";

/// Stands before a half of a character whose other half may come in the next event. It is no character, so no text has it.
const MARK: char = '\u{fdd0}';
/// The halves as characters, in the order of surrogates.
const FIRST_HALF: u32 = 0x10_f800;

/// A half of a character, in its marked form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Half<'a>(pub(crate) &'a str);

/// Parses `text`, with U+FFFD for every unpaired surrogate; `None` if it is not JSON.
pub(crate) fn parse(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(_) => serde_json::from_str(&with_whole_characters(text, Edges::Replace)?).ok(),
    }
}

/// Parses one event of a stream like [`parse`], but keeps marked halves at both ends of strings for [`join`].
pub(crate) fn parse_event(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(_) => serde_json::from_str(&with_whole_characters(text, Edges::Mark)?).ok(),
    }
}

/// Whether a text has marked halves.
pub(crate) fn has_half(text: &str) -> bool {
    text.match_indices(MARK).any(|(at, _)| half(&text[at..]).is_some())
}

/// Joins the marked halves of a text. Those that have no other half become U+FFFD, except one at the end, which may be waiting for it.
pub(crate) fn join(text: &str) -> (String, Option<Half<'_>>) {
    let (mut whole, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(MARK) {
        whole.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some((unit, after)) = half(rest) else {
            whole.push(MARK);
            rest = &rest[MARK.len_utf8()..];
            continue;
        };
        match (unit, half(after)) {
            (0xd800..=0xdbff, Some((low @ 0xdc00..=0xdfff, end))) => {
                let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                whole.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                rest = end;
            }
            (0xd800..=0xdbff, None) if after.is_empty() => return (whole, Some(Half(rest))),
            _ => {
                whole.push(char::REPLACEMENT_CHARACTER);
                rest = after;
            }
        }
    }
    whole.push_str(rest);
    (whole, None)
}

/// The surrogate that is marked at the beginning of a text, and what follows.
fn half(text: &str) -> Option<(u32, &str)> {
    let rest = text.strip_prefix(MARK)?;
    let unit = u32::from(rest.chars().next()?).checked_sub(FIRST_HALF)?;
    // The characters of this plane end with the last half.
    let after = rest.chars().next().map_or(0, char::len_utf8);
    Some((0xd800 + unit, &rest[after..]))
}

/// What becomes of an unpaired surrogate at the end of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edges {
    /// The same as elsewhere.
    Replace,
    /// It is marked.
    Mark,
}

/// The number of tokens at `pointer`; `None` for a negative, malformed or absurdly large number.
pub(crate) fn tokens(value: &Value, pointer: &str) -> Option<u64> {
    let number = value.pointer(pointer)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    let whole =
        |number: f64| (number.fract() == 0.0 && (0.0..1e15).contains(&number)).then_some(number as u64);
    // Some servers send counts as floating point numbers.
    let count = number.as_u64().or_else(|| number.as_f64().and_then(whole))?;
    (count <= MODEL_USAGE_TOKENS_MAX).then_some(count)
}

/// `text` without unpaired surrogates; `None` if it has none.
fn with_whole_characters(text: &str, edges: Edges) -> Option<String> {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_changed = false;
    while let Some(at) = rest.find('\\') {
        whole.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(unit @ 0xd800..=0xdfff), _) => {
                is_changed = true;
                // An escaped quote is a part of the string, and was copied with its escape.
                let begins = at > 0 && whole.ends_with('"');
                let ends = rest[6..].starts_with('"');
                let is_edge = if unit < 0xdc00 { ends } else { begins };
                match char::from_u32(FIRST_HALF + (unit - 0xd800)) {
                    Some(half) if edges == Edges::Mark && is_edge => whole.extend([MARK, half]),
                    Some(_) | None => whole.push_str(REPLACEMENT),
                }
                rest = &rest[6..];
                continue;
            }
            (Some(_), _) => 6,
            // An escape of one character, or a backslash at the very end.
            (None, _) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        whole.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    whole.push_str(rest);
    is_changed.then_some(whole)
}

/// The UTF-16 unit that starts `text` as `\uXXXX`.
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn halves_of_surrogate_pairs_are_replaced_and_whole_ones_are_kept() {
        for (text, want) in [
            (r#""a\ud83d""#, json!("a\u{fffd}")),
            (r#""\ude00b""#, json!("\u{fffd}b")),
            (r#""\ud83d\ude00 \ud83d""#, json!("😀 \u{fffd}")),
            (r#""\ud83d\ud83d\ude00""#, json!("\u{fffd}😀")),
            (r#""\\ud83d \ud83d""#, json!("\\ud83d \u{fffd}")),
            (r#"{"\udc00":"ä\n"}"#, json!({"\u{fffd}":"ä\n"})),
        ] {
            assert_eq!(parse(text), Some(want), "{text}");
        }
        for text in ["", "{", r#""\ud83d"#, r#""\u12""#, "\\", "\"\\ä\""] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn counts_that_cannot_be_are_not_given() {
        let usage = json!({"a":3,"b":-1,"c":4.0,"d":1.5,"e":"7","f":u64::MAX,"g":null,"h":1e300});
        let counts = ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i"].map(|key| tokens(&usage, key));
        assert_eq!(counts, [Some(3), None, Some(4), None, None, None, None, None, None]);
    }
}
