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
use store::broker::keys::SealedKey;
use zeroize::Zeroizing;

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
                let wrapped = Box::pin(transit.wrap(key, place)).await;
                wrapped.inspect_err(|error| self.note_failure("encrypt", place, error))?
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
                let unwrapped = Box::pin(transit.unwrap(sealed, place)).await;
                unwrapped.inspect_err(|error| self.note_failure("decrypt", place, error))
            }
        }
    }

    /// Logs a failure of the key service, so that callers log only what they do about it. What it says of a single secret is theirs to log.
    fn note_failure(&self, operation: &'static str, place: &SecretPlace<'_>, error: &EnvelopeError) {
        let (id, code) = (self.id(), error.code().as_str());
        let SecretPlace { tenant, project, name, .. } = place;
        macro_rules! log {
            ($level:ident, $reason:expr) => {
                tracing::$level!(
                    tenant.id = tenant,
                    project.id = project,
                    secret.name = name,
                    key.id = id,
                    operation,
                    error.code = code,
                    "cannot {operation} with the key {id}: {error}: {}",
                    $reason
                )
            };
        }
        match error {
            EnvelopeError::KmsRefused(reason) => log!(error, reason),
            EnvelopeError::KmsUnavailable(reason) => log!(warn, reason),
            EnvelopeError::KmsSecretRefused(_)
            | EnvelopeError::TooLarge
            | EnvelopeError::OtherKey
            | EnvelopeError::Damaged
            | EnvelopeError::Crypto => {}
        }
    }
}
