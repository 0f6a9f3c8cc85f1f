//! The format of API keys, and their creation.

use rand::RngExt as _;
use sha2::{Digest as _, Sha256};

/// The start of every API key, by which scanners for leaked secrets find it.
pub(super) const KEY_PREFIX: &str = "flk_";
/// Random characters of a key: 190 bits.
const KEY_CHARS: usize = 32;
/// Characters of a key that lists show.
pub(super) const PREFIX_CHARS: usize = 12;

/// A new key. Only its prefix and its hash are stored.
pub(crate) struct NewKey {
    pub(crate) prefix: String,
    pub(crate) secret: String,
    pub(crate) sha256: [u8; 32],
}

impl NewKey {
    pub(crate) fn make() -> Self {
        let secret = format!("{KEY_PREFIX}{}", random_text());
        Self { prefix: secret[..PREFIX_CHARS].to_owned(), sha256: Sha256::digest(&secret).into(), secret }
    }
}

pub(crate) fn random_text() -> String {
    let mut rng = rand::rng();
    std::iter::repeat_with(|| char::from(rng.sample(rand::distr::Alphanumeric))).take(KEY_CHARS).collect()
}
