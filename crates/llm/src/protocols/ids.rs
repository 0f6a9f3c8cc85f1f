//! Adapts tool call ids to the receiving provider: another provider may have made them.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Longest id that OpenAI accepts; bytes. A longer one is cut, and gets a hash at its end.
const BYTES_MAX: usize = 64;
/// The characters of Mistral's ids.
const ALPHANUMERIC: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The length of Mistral's ids.
const MISTRAL_BYTES: usize = 9;

/// Returns `id` if all providers but Mistral accept it, otherwise a similar id. The mapping is deterministic.
pub(crate) fn clean(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let mut clean: String = id.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if clean.len() > BYTES_MAX {
        // Two ids may differ only at the end, which the cut removes.
        let mark = format!("_{:016x}", hash(id));
        clean.truncate(BYTES_MAX - mark.len());
        clean.push_str(&mark);
    }
    if clean.is_empty() { "_".to_owned() } else { clean }
}

/// Maps `id` to a form that Mistral accepts: nine letters and digits.
pub(crate) fn mistral(id: &str) -> String {
    if id.len() == MISTRAL_BYTES && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    let mut rest = hash(id);
    let mut digit = || {
        let at = usize::try_from(rest % 62).unwrap_or_default();
        rest /= 62;
        char::from(ALPHANUMERIC[at])
    };
    (0..MISTRAL_BYTES).map(|_| digit()).collect()
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn ids_of_others_are_made_acceptable_and_stay_apart() {
        assert_eq!(
            (clean("call-1_a").as_str(), clean("a.b|ä").as_str(), clean("").as_str()),
            ("call-1_a", "a_b__", "_")
        );
        let long = |last: &str| clean(&format!("{}{last}", "x".repeat(100)));
        assert_eq!(long("a").len(), BYTES_MAX);
        assert_ne!(long("a"), long("b"));
        assert_eq!(mistral("abcDEF123"), "abcDEF123");
        let other = mistral("call_abc");
        assert!(other.len() == 9 && other.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{other}");
        assert!(other == mistral("call_abc") && other != mistral("call_abd"));
    }
}
