//! Values that must not reach a log: they print as `***`.

use serde::Deserialize;
use std::{convert::Infallible, fmt, str::FromStr};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// A secret value. It cannot be serialized, and its `Debug` and `Display` print `***`.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret<T>(T);

/// Secret bytes that are wiped from memory when they are dropped.
pub type SecretBytes = Secret<Zeroizing<Vec<u8>>>;

impl SecretBytes {
    /// Wraps bytes.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl<T> Secret<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value to the one place that needs it, such as a header or a connection. Never log it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl FromStr for Secret<String> {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

/// Whether two byte strings are equal, in a time that depends only on their lengths.
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        let secret: Secret<String> = "hunter2".parse().unwrap();
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
        assert_eq!(secret.expose(), "hunter2");
        assert_eq!(serde_json::from_str::<Secret<String>>("\"hunter2\"").unwrap(), secret);
    }

    #[test]
    fn secrets_are_compared_by_their_bytes() {
        for (left, right, equal) in [("", "", true), ("a", "a", true), ("a", "b", false), ("a", "ab", false)]
        {
            assert_eq!(constant_time_eq(left.as_bytes(), right.as_bytes()), equal, "{left:?} {right:?}");
        }
    }
}
