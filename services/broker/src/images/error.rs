//! Why an image cannot be resolved or pulled. The text tells people what to do. It contains nothing that a registry wrote but digests, media
//! types and platforms, and never a URL: the addresses of blobs often contain signatures.

use domain::secret::SecretName;
use rpc::v1::ErrorCode;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The reference is none. The text is not repeated: somebody may have written a password into it.
    #[error("{0}; write registry/repository:tag, or registry/repository@sha256: and 64 hexadecimal digits")]
    ReferenceInvalid(&'static str),
    /// The registry has no such manifest or blob.
    #[error("{registry} does not have {subject}; check the name and the tag of the image")]
    Unknown {
        registry: String,
        /// An image or a part of it.
        subject: String,
    },
    /// The image is not for everybody.
    #[error(
        "{registry} does not give {subject} to anonymous callers; it needs a credential: name its secret in `environment.image_credential`"
    )]
    CredentialMissing {
        registry: String,
        /// The image.
        subject: String,
    },
    /// The registry does not take the credential, or the credential does not open this image.
    #[error(
        "{registry} refuses the credential {name} for {subject}; set the secret to one that may pull this image"
    )]
    CredentialRefused {
        /// The registry or its token service.
        registry: String,
        name: SecretName,
        /// The image.
        subject: String,
    },
    /// The value of the secret has not the shape of a credential.
    #[error(
        "the secret {0} is not a credential of a registry; set it to user:password, to <token>:identity-token, or to a bearer token in one line"
    )]
    CredentialMalformed(SecretName),
    /// The secret is for other servers. The text says for which.
    #[error("{0}")]
    CredentialNotFor(String),
    /// Neither the project nor the tenant has the secret.
    #[error(
        "there is no secret {0}, neither of the project nor of the tenant; set it with `flotilla secret set {0}`, or name another one"
    )]
    CredentialUnknown(SecretName),
    /// A part of the image is beyond a bound.
    #[error("{0}")]
    TooLarge(String),
    /// The image is nothing that a sandbox of this machine can show.
    #[error("{0}")]
    Unsupported(String),
    /// The registry sent other bytes than the digest names.
    #[error("{0}; the registry or something on the way to it changed the bytes: push the image again")]
    DigestWrong(String),
    /// There is no connection to the host.
    #[error("cannot reach {host}: {reason}")]
    Unreachable {
        /// The registry, its token service, or a host with its blobs.
        host: String,
        /// What stands in the way.
        reason: String,
    },
    /// The host does not do what registries do.
    #[error("{host} failed: {reason}")]
    Failed {
        /// The registry, its token service, or a host with its blobs.
        host: String,
        reason: String,
    },
    /// Nothing is wrong but the moment.
    #[error("{0}; try again later")]
    Busy(String),
    /// The broker stops, or the caller did not read.
    #[error("the pull was interrupted: {0}; try again")]
    Interrupted(&'static str),
}

impl ImageError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::ReferenceInvalid(_) => ErrorCode::ImageReferenceInvalid,
            Self::Unknown { .. } => ErrorCode::ImageUnknown,
            Self::CredentialMissing { .. }
            | Self::CredentialRefused { .. }
            | Self::CredentialMalformed(_)
            | Self::CredentialNotFor(_) => ErrorCode::ImageUnauthorized,
            Self::CredentialUnknown(_) => ErrorCode::SecretNotFound,
            Self::TooLarge(_) => ErrorCode::ImageTooLarge,
            Self::Unsupported(_) => ErrorCode::ImageUnsupported,
            Self::DigestWrong(_) => ErrorCode::ImageDigestWrong,
            Self::Unreachable { .. } => ErrorCode::RegistryUnreachable,
            Self::Failed { .. } => ErrorCode::RegistryFailed,
            Self::Busy(_) => ErrorCode::RegistryBusy,
            Self::Interrupted(_) => ErrorCode::PullInterrupted,
        }
    }
}
