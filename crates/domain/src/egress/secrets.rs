//! The answer of a session's door to the program that runs a setup or an install: the secrets of the script, or the reason for refusing them. The broker
//! writes it; the program reads it in the sandbox of the script.

use crate::limits::{ENVIRONMENT_SECRETS_MAX, SECRET_BYTES_MAX};

/// The name of the socket in the directory of a door.
pub const SECRETS_SOCKET: &str = "secrets";
/// The exit code of the program if another attempt may get the secrets.
pub const SECRETS_PASSING_CODE: u8 = 213;
/// Bytes of the name of a variable. Beyond it: `settings_invalid` or `config_invalid`.
pub const SECRET_VARIABLE_BYTES_MAX: usize = 128;
/// Bytes of the longest answer. A longer one is refused as incomplete.
pub const SECRETS_ANSWER_BYTES_MAX: usize =
    ENVIRONMENT_SECRETS_MAX * (SECRET_VARIABLE_BYTES_MAX + SECRET_BYTES_MAX + 2) + 2;

/// The first byte of an answer with values.
const VALUES: u8 = b'+';
/// The first byte of a refusal.
const REFUSAL: u8 = b'-';
/// The first byte of a refusal after which another attempt may succeed.
const PASSING: u8 = b'~';

/// Why an answer has no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The broker refuses, with a sentence for people.
    #[error("{0}")]
    Refused(String),
    /// The same, and another attempt may succeed.
    #[error("{0}")]
    Passing(String),
    /// The connection ended too early, or this is no answer.
    #[error("the answer of the broker is incomplete")]
    Incomplete,
}

/// The answer with these variables. A value must contain no zero byte.
pub fn encode<'a>(variables: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<u8> {
    let bytes: usize = variables.clone().map(|(name, value)| name.len() + value.len() + 2).sum();
    // With room for everything: a vector that grows leaves copies of the values behind.
    let mut answer = Vec::with_capacity(bytes + 2);
    answer.push(VALUES);
    for (name, value) in variables {
        for part in [name, "=", value, "\0"] {
            answer.extend_from_slice(part.as_bytes());
        }
    }
    answer.push(0);
    answer
}

/// The answer that refuses, with a sentence for people.
pub fn encode_refusal(text: &str) -> Vec<u8> {
    [&[REFUSAL][..], text.as_bytes()].concat()
}

/// The answer that refuses, after which another attempt may succeed.
pub fn encode_passing_refusal(text: &str) -> Vec<u8> {
    [&[PASSING][..], text.as_bytes()].concat()
}

/// Reads an answer: the names of the variables with their values.
///
/// # Errors
/// Those of [`AnswerError`].
pub fn decode(answer: &[u8]) -> Result<Vec<(String, String)>, AnswerError> {
    let incomplete = || AnswerError::Incomplete;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| incomplete());
    match answer {
        [REFUSAL, sentence @ ..] => Err(AnswerError::Refused(text(sentence)?)),
        [PASSING, sentence @ ..] => Err(AnswerError::Passing(text(sentence)?)),
        [VALUES, 0] => Ok(vec![]),
        [VALUES, variables @ .., 0, 0] => {
            let read = |variable| {
                let (name, value) = str::split_once(variable, '=').ok_or_else(incomplete)?;
                Ok((name.to_owned(), value.to_owned()))
            };
            text(variables)?.split('\0').map(read).collect()
        }
        _ => Err(incomplete()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_answer_is_read_as_it_was_written(
            variables in prop::collection::vec(("[A-Z_]{1,9}", "[^\0]{0,40}"), 0..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let written = variables.iter().map(|(name, value): &(String, String)| (&**name, &**value));
            let answer = encode(written);
            prop_assert_eq!(decode(&answer), Ok(variables));
            let part = &answer[..cut.index(answer.len())];
            prop_assert!(decode(part).is_err(), "a broken connection gives no part of the secrets");
        }
    }

    #[test]
    fn a_refusal_is_told_and_nonsense_is_incomplete() {
        assert_eq!(
            decode(&encode_refusal("no such secret")),
            Err(AnswerError::Refused("no such secret".to_owned()))
        );
        assert_eq!(decode(&encode_passing_refusal("later")), Err(AnswerError::Passing("later".to_owned())));
        for nonsense in [&b""[..], b"+", b"x", b"+A\0\0", b"+A=\xff\0\0", b"-\xff"] {
            assert_eq!(decode(nonsense), Err(AnswerError::Incomplete), "{nonsense:?}");
        }
    }
}
