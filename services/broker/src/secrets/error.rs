//! Why the broker cannot seal or open a value.

use domain::limits::SECRET_BYTES_MAX;
use rpc::v1::ErrorCode;

/// The reason. The texts contain neither the value nor a key nor a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("a secret has at most {SECRET_BYTES_MAX} bytes")]
    TooLarge,
    /// Another key of the deployment sealed it.
    #[error("the secret was sealed with another key of this deployment; restore its key file")]
    OtherKey,
    /// Somebody changed the row, or it belongs elsewhere.
    #[error("the stored secret is damaged, or belongs to another place")]
    Damaged,
    /// The library refused, for example because there is no randomness.
    #[error("cannot encrypt")]
    Crypto,
    /// The key service is away, or does not do what key services do. Another try may succeed.
    #[error("the key service of the broker is not available")]
    KmsUnavailable(#[source] KmsReason),
    /// The broker cannot use its key in the key service.
    #[error("the key service of the broker does not let it use the key")]
    KmsRefused(#[source] KmsReason),
    /// The key service does not decrypt this secret, and may decrypt others.
    #[error("the key service of the broker does not decrypt this secret")]
    KmsSecretRefused(#[source] KmsReason),
}

/// What is wrong with a key service, for the operator: only logs and failed starts show it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KmsReason(pub(super) String);

impl EnvelopeError {
    /// Whether the key service as a whole caused it. The key has logged it.
    pub fn is_of_key_service(&self) -> bool {
        match self {
            Self::KmsUnavailable(_) | Self::KmsRefused(_) => true,
            Self::KmsSecretRefused(_) | Self::TooLarge | Self::OtherKey | Self::Damaged | Self::Crypto => {
                false
            }
        }
    }

    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge => ErrorCode::SecretTooLarge,
            Self::OtherKey => ErrorCode::SecretKeyMissing,
            Self::Damaged => ErrorCode::SecretDamaged,
            Self::Crypto => ErrorCode::SecretNotSealed,
            Self::KmsUnavailable(_) => ErrorCode::KmsUnavailable,
            Self::KmsRefused(_) | Self::KmsSecretRefused(_) => ErrorCode::KmsRefused,
        }
    }
}
