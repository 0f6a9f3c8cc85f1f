//! The name of a blob or of a layer: the SHA-256 of its bytes.

use crate::error::Error;
use domain::text;
use rpc::v1::ErrorCode;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

const PREFIX: &str = "sha256:";

/// `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(Box<str>);

impl Digest {
    /// The digits alone. They are the name of a directory.
    pub fn hex(&self) -> &str {
        &self.0
    }

    /// The digest whose digits these are.
    pub(super) fn from_hex(hex: &str) -> Option<Self> {
        text::is_sha256(hex).then(|| Self(hex.into()))
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.strip_prefix(PREFIX).and_then(Self::from_hex).ok_or_else(|| {
            let text = format!(
                "{text:?} is not a digest; write it as sha256: and 64 hexadecimal digits in small letters"
            );
            Error::refused(ErrorCode::ArgumentInvalid, text)
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}", self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}
