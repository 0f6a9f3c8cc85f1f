//! Seals a value under a key that is made for it alone, and that key under the key of the deployment. A thief of the rows reads
//! nothing without the key of the deployment; a new key of the deployment needs no value to be sealed again.

use super::key_file::{KEY_BYTES, KeyFile};
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    error::Unspecified,
    rand,
};
use chassis::secret::Secret;

/// Bytes of a value. Keys and certificates take a few thousand. Beyond it: `secret_too_large`.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

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

/// A value as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedValue {
    /// The identity of the deployment's key.
    pub key_id: String,
    /// The key of the value, under that of the deployment.
    pub sealed_key: Vec<u8>,
    /// The value, under its own key.
    pub ciphertext: Vec<u8>,
}

/// Why a value cannot be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// It is too long.
    #[error("a secret has at most {VALUE_BYTES_MAX} bytes")]
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
    value: &Secret<Vec<u8>>,
    place: &SecretPlace<'_>,
    deployment: &KeyFile,
) -> Result<SealedValue, EnvelopeError> {
    if value.expose().len() > VALUE_BYTES_MAX {
        return Err(EnvelopeError::TooLarge);
    }
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key).map_err(|_| EnvelopeError::Crypto)?;
    let context = place.context();
    let encrypt = |key: &[u8], text: &[u8]| encrypt(key, &context, text).map_err(|_| EnvelopeError::Crypto);
    let (ciphertext, sealed_key) = (encrypt(&key, value.expose())?, encrypt(deployment.key(), &key)?);
    key.fill(0);
    Ok(SealedValue { key_id: deployment.id().to_owned(), sealed_key, ciphertext })
}

/// Opens a value in its place.
///
/// # Errors
/// `OtherKey`, `Damaged`.
pub fn open(
    sealed: &SealedValue,
    place: &SecretPlace<'_>,
    deployment: &KeyFile,
) -> Result<Secret<Vec<u8>>, EnvelopeError> {
    if sealed.key_id != deployment.id() {
        return Err(EnvelopeError::OtherKey);
    }
    let context = place.context();
    let decrypt = |key: &[u8], text: &[u8]| decrypt(key, &context, text).map_err(|_| EnvelopeError::Damaged);
    let mut key = decrypt(deployment.key(), &sealed.sealed_key)?;
    let value = decrypt(&key, &sealed.ciphertext);
    key.fill(0);
    value.map(Secret::new)
}

impl SecretPlace<'_> {
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

/// The nonce, and then the text with its tag.
fn encrypt(key: &[u8], context: &[u8], text: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key)?;
    let mut bytes = text.to_vec();
    let nonce = key.seal_in_place_append_tag(Aad::from(context), &mut bytes)?;
    Ok([&nonce.as_ref()[..], &bytes].concat())
}

fn decrypt(key: &[u8], context: &[u8], bytes: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key)?;
    let (nonce, text) = bytes.split_at_checked(NONCE_LEN).ok_or(Unspecified)?;
    let mut text = text.to_vec();
    let length =
        key.open_in_place(Nonce::try_assume_unique_for_key(nonce)?, Aad::from(context), &mut text)?.len();
    text.truncate(length);
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    const PLACE: SecretPlace<'_> = SecretPlace { tenant: "t1", project: "p1", name: "NPM_TOKEN", version: 1 };

    fn key_file() -> (tempfile::TempDir, KeyFile) {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::open_or_create(&directory.path().join("key")).unwrap();
        (directory, file)
    }

    #[test]
    fn a_value_opens_only_in_its_own_place() {
        let (_directory, file) = key_file();
        let value = Secret::new(b"npm_secret".to_vec());
        let sealed = seal(&value, &PLACE, &file).unwrap();
        assert_eq!(open(&sealed, &PLACE, &file).unwrap().expose(), b"npm_secret");
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
        let sealed = seal(&Secret::new(b"value".to_vec()), &PLACE, &file).unwrap();
        for at in 0..sealed.ciphertext.len() {
            let mut changed = sealed.clone();
            changed.ciphertext[at] ^= 1;
            assert_eq!(open(&changed, &PLACE, &file).err(), Some(EnvelopeError::Damaged), "byte {at}");
        }
        for cut in [
            SealedValue { ciphertext: vec![], ..sealed.clone() },
            SealedValue { sealed_key: vec![1; 5], ..sealed.clone() },
        ] {
            assert_eq!(open(&cut, &PLACE, &file).err(), Some(EnvelopeError::Damaged));
        }
        let (_other_directory, other) = key_file();
        assert_eq!(open(&sealed, &PLACE, &other).err(), Some(EnvelopeError::OtherKey));
        let large = Secret::new(vec![0; VALUE_BYTES_MAX + 1]);
        assert_eq!(seal(&large, &PLACE, &file).err(), Some(EnvelopeError::TooLarge));
    }
}
