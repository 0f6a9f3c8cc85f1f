//! The tokens of callers. Each kind of caller may have its own under its name, and two while one replaces the other.

use crate::secret::{Secret, constant_time_eq};
use std::collections::BTreeMap;
use tonic::codegen::http::{HeaderMap, header::AUTHORIZATION};

/// Bytes of a token: fewer can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Tokens of one name: the one that is replaced, and its successor. The service does not start with more.
const TOKENS_OF_NAME_MAX: usize = 2;
/// The name of the token without a name.
const ANY: &str = "any";

/// A kind of caller. Each service says which of its calls are for which kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Its token has no name, and is for every call.
    Any,
    Gateway,
    Worker,
}

impl Caller {
    fn find(name: &str) -> Option<Self> {
        match name {
            "gateway" => Some(Self::Gateway),
            "worker" => Some(Self::Worker),
            _ => None,
        }
    }
}

/// The tokens that callers may present.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<NamedToken>);

#[derive(Debug, Clone)]
pub struct NamedToken {
    pub caller: Caller,
    /// For metrics: the name, and which of its tokens.
    pub label: String,
    token: Secret<String>,
}

impl Tokens {
    /// Reads a token for any caller and those by name, each `name:token`. Returns them with every problem of them; a problem never shows a
    /// token. `service` begins the names of the variables, such as `FLOTILLA_SANDBOX`.
    pub fn read(
        service: &str,
        any: Option<&Secret<String>>,
        named: &[Secret<String>],
    ) -> (Self, Vec<String>) {
        let (mut tokens, mut problems, mut counts) = (vec![], vec![], BTreeMap::<&str, usize>::new());
        let mut has_unknown_name = false;
        for (at, text) in named.iter().enumerate() {
            let is_name = |name: &str| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            };
            let Some((name, token)) = text.expose().split_once(':').filter(|(name, _)| is_name(name)) else {
                problems.push(format!("{service}_TOKENS must be name:token,…; number {} is not", at + 1));
                continue;
            };
            let count = counts.entry(name).or_default();
            *count += 1;
            if *count > TOKENS_OF_NAME_MAX {
                problems
                    .push(format!("{service}_TOKENS has more than {TOKENS_OF_NAME_MAX} tokens of {name}"));
            }
            if token.len() < TOKEN_BYTES_MIN {
                problems.push(format!("the token of {name} must have at least {TOKEN_BYTES_MIN} bytes"));
            }
            let label = if *count == 1 { name.to_owned() } else { format!("{name}-{count}") };
            match Caller::find(name) {
                Some(caller) => {
                    tokens.push(NamedToken { caller, label, token: Secret::new(token.to_owned()) });
                }
                None => has_unknown_name = true,
            }
        }
        if has_unknown_name {
            problems.push(format!("{service}_TOKENS has a name that is neither gateway nor worker"));
        }
        if let Some(token) = any {
            if token.expose().len() < TOKEN_BYTES_MIN {
                problems.push(format!("{service}_TOKEN must have at least {TOKEN_BYTES_MIN} bytes"));
            }
            tokens.push(NamedToken { caller: Caller::Any, label: ANY.to_owned(), token: token.clone() });
        }
        if any.is_none() && named.is_empty() {
            problems.push(format!("set {service}_TOKENS or {service}_TOKEN"));
        }
        (Self(tokens), problems)
    }

    /// Finds the token in `authorization: Bearer <token>`.
    pub fn find_bearer(&self, headers: &HeaderMap) -> Option<&NamedToken> {
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        self.find(header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default())
    }

    /// Finds a token. The time does not depend on which one it is.
    pub fn find(&self, token: &str) -> Option<&NamedToken> {
        let mut found = None;
        for known in &self.0 {
            if constant_time_eq(token.as_bytes(), known.token.expose().as_bytes()) {
                found = Some(known);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn read(any: Option<&str>, named: &[&str]) -> (Tokens, Vec<String>) {
        let secret = |text: &str| Secret::new(text.to_owned());
        let named: Vec<_> = named.iter().map(|text| secret(text)).collect();
        Tokens::read("FLOTILLA_SANDBOX", any.map(secret).as_ref(), &named)
    }

    #[test]
    fn each_caller_has_its_token_and_two_while_one_is_replaced() {
        let named = ["gateway:aaaaaaaaaaaaaaaa", "worker:bbbb:bbbbbbbbbbbb", "worker:cccccccccccccccc"];
        let (tokens, problems) = read(Some("dddddddddddddddd"), &named);
        assert_eq!(problems, Vec::<String>::new());
        for (token, want) in [
            ("aaaaaaaaaaaaaaaa", Some((Caller::Gateway, "gateway"))),
            ("bbbb:bbbbbbbbbbbb", Some((Caller::Worker, "worker"))),
            ("cccccccccccccccc", Some((Caller::Worker, "worker-2"))),
            ("dddddddddddddddd", Some((Caller::Any, "any"))),
            ("gateway:aaaaaaaaaaaaaaaa", None),
            ("aaaaaaaaaaaaaaa", None),
            ("", None),
        ] {
            let found = tokens.find(token).map(|found| (found.caller, found.label.as_str()));
            assert_eq!(found, want, "{token}");
        }
    }

    #[test]
    fn wrong_tokens_are_named_and_not_shown() {
        let three = ["w:aaaaaaaaaaaaaaaa", "w:bbbbbbbbbbbbbbbb", "w:cccccccccccccccc"];
        for (any, named, want) in [
            (None, &[][..], "set FLOTILLA_SANDBOX_TOKENS"),
            (Some("short"), &[], "at least 16 bytes"),
            (None, &["secretsecretsecret"], "number 1 is not"),
            (None, &[":secretsecretsecret"], "number 1 is not"),
            (None, &["worker:secret"], "the token of worker"),
            (None, &three, "more than 2 tokens of w"),
            (None, &three, "FLOTILLA_SANDBOX_TOKENS has a name that is neither gateway nor worker"),
        ] {
            let problems = read(any, named).1.join("\n");
            assert!(problems.contains(want) && !problems.contains("secret"), "{problems}");
        }
        let (tokens, problems) = read(None, &["somebody:aaaaaaaaaaaaaaaa"]);
        assert_eq!((problems.len(), tokens.find("aaaaaaaaaaaaaaaa").is_some()), (1, false));
    }
}
