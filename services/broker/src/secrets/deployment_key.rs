//! A key of the deployment, under which the keys of values rest: in a file that only the broker reads, or in a key service (KMS).
//!
//! A further kind of key service is one more variant. It must:
//! - name its key by an identity that never changes and says nothing about the key, or at least by a name: another key of this name is noticed, because it
//!   does not open the canary of the first one;
//! - encrypt and decrypt 32 bytes for a context (associated data) of at most 512 bytes, and refuse to decrypt with another context;
//! - answer within seconds, or fail with an error that a repeated call may not have;
//! - keep every key that rows still name: without it their values are lost.

use super::{
    cipher::{decrypt, encrypt},
    error::EnvelopeError,
    key_file::{KEY_BYTES, KeyFile},
    place::SecretPlace,
    transit::TransitKey,
};
use std::error::Error as _;
use store::broker::keys::SealedKey;
use zeroize::Zeroizing;

/// Where the key is.
#[derive(Debug)]
pub enum DeploymentKey {
    /// In a file of this machine.
    File(KeyFile),
    /// In the transit engine of Vault or OpenBao.
    Transit(Box<TransitKey>),
}

impl DeploymentKey {
    /// The identity of the key. It says nothing about the key itself.
    pub fn id(&self) -> &str {
        match self {
            Self::File(file) => file.id(),
            Self::Transit(transit) => transit.id(),
        }
    }

    /// Encrypts the key of a value.
    pub(super) async fn wrap(
        &self,
        key: &[u8; KEY_BYTES],
        place: &SecretPlace<'_>,
    ) -> Result<SealedKey, EnvelopeError> {
        let bytes = match self {
            Self::File(file) => {
                encrypt(file.key(), &place.context(), key).map_err(|_| EnvelopeError::Crypto)?
            }
            Self::Transit(transit) => {
                Box::pin(transit.wrap(key, place)).await.inspect_err(|error| note(self.id(), error))?
            }
        };
        Ok(SealedKey { key_id: self.id().to_owned(), bytes })
    }

    /// Decrypts the key of a value.
    pub(super) async fn unwrap(
        &self,
        sealed: &[u8],
        place: &SecretPlace<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, EnvelopeError> {
        match self {
            Self::File(file) => {
                decrypt(file.key(), &place.context(), sealed).map_err(|_| EnvelopeError::Damaged)
            }
            Self::Transit(transit) => {
                Box::pin(transit.unwrap(sealed, place)).await.inspect_err(|error| note(self.id(), error))
            }
        }
    }
}

/// Logs what is wrong with a key service: callers do not learn the reason.
fn note(key_id: &str, error: &EnvelopeError) {
    if let Some(reason) = error.source() {
        tracing::warn!(key.id = key_id, error.code = error.code(), "{error}: {reason}");
    }
}
