//! Seals a value under a key that is made for it alone, and that key under the key of the deployment. A thief of the rows reads
//! nothing without the key of the deployment; a new key of the deployment needs no value to be sealed again.

use super::{
    cipher::{decrypt, encrypt},
    deployment_key::DeploymentKey,
    key_file::KEY_BYTES,
};
use aws_lc_rs::rand;
use chassis::secret::SecretBytes;
use domain::{limits::SECRET_BYTES_MAX, secret::SecretAddress};
use store::broker::secrets::SealedSecret;
use zeroize::Zeroizing;

/// Where a value belongs. A sealed value opens only in its own place: a row that is copied to another tenant, name or version is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretPlace<'a> {
    /// The id of the tenant.
    pub tenant: &'a str,
    /// The id of the project; empty: a secret of the whole tenant.
    pub project: &'a str,
    /// Its name in settings.
    pub name: &'a str,
    /// Counted up by each change.
    pub version: u64,
}

/// Why a value cannot be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// It is too long.
    #[error("a secret has at most {SECRET_BYTES_MAX} bytes")]
    TooLarge,
    /// It was sealed with another key of the deployment.
    #[error("the secret was sealed with another key of this deployment; restore its key file")]
    OtherKey,
    /// The row was changed, or belongs elsewhere.
    #[error("the stored secret is damaged, or belongs to another place")]
    Damaged,
    /// The library refused, for example because there is no randomness.
    #[error("cannot encrypt")]
    Crypto,
}

impl EnvelopeError {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "secret_too_large",
            Self::OtherKey => "secret_key_missing",
            Self::Damaged => "secret_damaged",
            Self::Crypto => "secret_not_sealed",
        }
    }
}

/// Seals a value for its place.
///
/// # Errors
/// `TooLarge`, `Crypto`.
pub fn seal(
    value: &SecretBytes,
    place: &SecretPlace<'_>,
    deployment: &DeploymentKey,
) -> Result<SealedSecret, EnvelopeError> {
    if value.expose().len() > SECRET_BYTES_MAX {
        return Err(EnvelopeError::TooLarge);
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    rand::fill(&mut *key).map_err(|_| EnvelopeError::Crypto)?;
    let context = place.context();
    let ciphertext = encrypt(&*key, &context, value.expose()).map_err(|_| EnvelopeError::Crypto)?;
    let sealed_key = deployment.wrap(&key, &context).map_err(|_| EnvelopeError::Crypto)?;
    Ok(SealedSecret { key_id: deployment.id().to_owned(), sealed_key, ciphertext })
}

/// Opens a value in its place.
///
/// # Errors
/// `OtherKey`, `Damaged`.
pub fn open(
    sealed: &SealedSecret,
    place: &SecretPlace<'_>,
    deployment: &DeploymentKey,
) -> Result<SecretBytes, EnvelopeError> {
    if sealed.key_id != deployment.id() {
        return Err(EnvelopeError::OtherKey);
    }
    let context = place.context();
    let key = deployment.unwrap(&sealed.sealed_key, &context).map_err(|_| EnvelopeError::Damaged)?;
    let value = decrypt(&key, &context, &sealed.ciphertext).map_err(|_| EnvelopeError::Damaged)?;
    Ok(SecretBytes::new(value))
}

impl<'a> SecretPlace<'a> {
    /// The place of a version of a secret. `tenant` is the text of the tenant's id.
    pub fn of(tenant: &'a str, address: &'a SecretAddress, version: u64) -> Self {
        Self { tenant, project: address.scope(), name: address.name.as_str(), version }
    }

    /// Bytes that are different for every place: each text stands behind its length.
    fn context(&self) -> Vec<u8> {
        let mut context = self.version.to_be_bytes().to_vec();
        for text in [self.tenant, self.project, self.name] {
            context.extend((text.len() as u64).to_be_bytes());
            context.extend(text.as_bytes());
        }
        context
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::secrets::key_file::KeyFile;

    const PLACE: SecretPlace<'_> = SecretPlace { tenant: "t1", project: "p1", name: "NPM_TOKEN", version: 1 };

    fn key_file() -> (tempfile::TempDir, DeploymentKey) {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::open_or_create(&directory.path().join("key")).unwrap();
        (directory, DeploymentKey::File(file))
    }

    #[test]
    fn a_value_opens_only_in_its_own_place() {
        let (_directory, file) = key_file();
        let value = SecretBytes::of(b"npm_secret".to_vec());
        let sealed = seal(&value, &PLACE, &file).unwrap();
        assert_eq!(open(&sealed, &PLACE, &file).unwrap().expose().as_slice(), b"npm_secret");
        let text = [&sealed.sealed_key[..], &sealed.ciphertext].concat();
        assert!(!text.windows(10).any(|window| window == b"npm_secret"));
        assert_ne!(seal(&value, &PLACE, &file).unwrap(), sealed, "the same value looks different each time");
        for other in [
            SecretPlace { tenant: "t2", ..PLACE },
            SecretPlace { project: "", ..PLACE },
            SecretPlace { name: "OTHER", ..PLACE },
            SecretPlace { version: 2, ..PLACE },
            // The same texts one after another.
            SecretPlace { tenant: "t1p", project: "1", ..PLACE },
        ] {
            assert_eq!(open(&sealed, &other, &file).err(), Some(EnvelopeError::Damaged), "{other:?}");
        }
    }

    #[test]
    fn a_changed_row_and_another_key_are_noticed() {
        let (_directory, file) = key_file();
        let sealed = seal(&SecretBytes::of(b"value".to_vec()), &PLACE, &file).unwrap();
        for at in 0..sealed.ciphertext.len() {
            let mut changed = sealed.clone();
            changed.ciphertext[at] ^= 1;
            assert_eq!(open(&changed, &PLACE, &file).err(), Some(EnvelopeError::Damaged), "byte {at}");
        }
        for cut in [
            SealedSecret { ciphertext: vec![], ..sealed.clone() },
            SealedSecret { sealed_key: vec![1; 5], ..sealed.clone() },
        ] {
            assert_eq!(open(&cut, &PLACE, &file).err(), Some(EnvelopeError::Damaged));
        }
        let (_other_directory, other) = key_file();
        assert_eq!(open(&sealed, &PLACE, &other).err(), Some(EnvelopeError::OtherKey));
        let large = SecretBytes::of(vec![0; SECRET_BYTES_MAX + 1]);
        assert_eq!(seal(&large, &PLACE, &file).err(), Some(EnvelopeError::TooLarge));
    }
}
