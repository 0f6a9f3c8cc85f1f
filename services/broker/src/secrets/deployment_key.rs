//! The key of the deployment, under which the keys of all values rest.
//!
//! Today it is a file that only the broker reads. A key service (KMS) is one more variant here. It must:
//! - name its key by an identity that never changes and says nothing about the key;
//! - encrypt and decrypt 32 bytes for a context (associated data) of at most 512 bytes, and refuse to decrypt with another context;
//! - answer within seconds, or fail with an error that a repeated call may not have;
//! - keep every key that rows still name: without it their values are lost.

use super::{
    cipher::{decrypt, encrypt},
    key_file::{KEY_BYTES, KeyFile},
};
use aws_lc_rs::error::Unspecified;
use zeroize::Zeroizing;

/// Where the key is.
#[derive(Debug)]
pub enum DeploymentKey {
    /// In a file of this machine.
    File(KeyFile),
}

impl DeploymentKey {
    /// The identity of the key. It says nothing about the key itself.
    pub fn id(&self) -> &str {
        match self {
            Self::File(file) => file.id(),
        }
    }

    /// Encrypts the key of a value.
    pub(super) fn wrap(&self, key: &[u8; KEY_BYTES], context: &[u8]) -> Result<Vec<u8>, Unspecified> {
        match self {
            Self::File(file) => encrypt(file.key(), context, key),
        }
    }

    /// Decrypts the key of a value.
    pub(super) fn unwrap(&self, sealed: &[u8], context: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
        match self {
            Self::File(file) => decrypt(file.key(), context, sealed),
        }
    }
}
