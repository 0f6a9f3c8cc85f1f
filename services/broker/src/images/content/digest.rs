//! The name of a manifest, a configuration or a layer: the SHA-256 of its bytes.

use aws_lc_rs::digest::{self, Context, SHA256};
use domain::text;
use std::{fmt, str::FromStr};

const PREFIX: &str = "sha256:";

/// `sha256:` and 64 hexadecimal digits in small letters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Digest(Box<str>);

/// The text is no such digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is sha256: and 64 hexadecimal digits in small letters")]
pub struct DigestError;

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_sum(&digest::digest(&SHA256, bytes))
    }

    /// The text with its prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn from_sum(sum: &digest::Digest) -> Self {
        Self(format!("{PREFIX}{}", text::hex(sum.as_ref())).into())
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let is_digest = text.strip_prefix(PREFIX).is_some_and(text::is_sha256);
        if is_digest { Ok(Self(text.into())) } else { Err(DigestError) }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The digest of bytes that come in pieces.
pub(crate) struct DigestSum(Context);

impl DigestSum {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest::from_sum(&self.0.finish())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_sha256_in_small_letters_is_a_digest() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap(), DigestSum::new().finish());
        for wrong in
            ["", "sha256:", &empty.to_uppercase(), &empty[7..], &empty.replace("256", "512"), &empty[..70]]
        {
            assert_eq!(wrong.parse::<Digest>(), Err(DigestError), "{wrong}");
        }
    }
}
