//! Seals a value under a key that is made for it alone, and that key under the key of the deployment. A thief of the rows reads
//! nothing without the key of the deployment; a new key of the deployment needs no value to be sealed again.

use super::{
    cipher::{decrypt, encrypt},
    deployment_key::DeploymentKey,
    error::EnvelopeError,
    key_file::KEY_BYTES,
    keyring::Keyring,
    place::SecretPlace,
};
use aws_lc_rs::rand;
use chassis::secret::SecretBytes;
use domain::limits::SECRET_BYTES_MAX;
use store::broker::{keys::SealedKey, secrets::SealedSecret};
use zeroize::Zeroizing;

/// Seals a value for its place.
///
/// # Errors
/// `TooLarge`, `Crypto`, and those of a key service.
pub(super) async fn seal(
    value: &SecretBytes,
    place: &SecretPlace<'_>,
    deployment: &DeploymentKey,
) -> Result<SealedSecret, EnvelopeError> {
    if value.expose().len() > SECRET_BYTES_MAX {
        return Err(EnvelopeError::TooLarge);
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    rand::fill(&mut *key).map_err(|_| EnvelopeError::Crypto)?;
    let ciphertext = encrypt(&*key, &place.context(), value.expose()).map_err(|_| EnvelopeError::Crypto)?;
    let SealedKey { key_id, bytes: sealed_key } = deployment.wrap(&key, place).await?;
    Ok(SealedSecret { key_id, sealed_key, ciphertext })
}

/// Opens a value in its place.
///
/// # Errors
/// `OtherKey`, `Damaged`, and those of a key service.
pub(super) async fn open(
    sealed: &SealedSecret,
    place: &SecretPlace<'_>,
    keys: &Keyring,
) -> Result<SecretBytes, EnvelopeError> {
    let deployment = keys.find(&sealed.key_id).ok_or(EnvelopeError::OtherKey)?;
    let key = deployment.unwrap(&sealed.sealed_key, place).await?;
    let value = decrypt(&key, &place.context(), &sealed.ciphertext).map_err(|_| EnvelopeError::Damaged)?;
    Ok(SecretBytes::new(value))
}

/// Seals the key of a value with another key of the deployment. The value stays as it is.
///
/// # Errors
/// Those of [`open`] and [`seal`].
pub(super) async fn reseal(
    sealed: &SealedKey,
    place: &SecretPlace<'_>,
    keys: &Keyring,
    deployment: &DeploymentKey,
) -> Result<SealedKey, EnvelopeError> {
    let older = keys.find(&sealed.key_id).ok_or(EnvelopeError::OtherKey)?;
    let key = older.unwrap(&sealed.bytes, place).await?;
    let key = <&[u8; KEY_BYTES]>::try_from(key.as_slice()).map_err(|_| EnvelopeError::Damaged)?;
    deployment.wrap(key, place).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::secrets::key_file::KeyFile;
    use futures::FutureExt as _;

    const PLACE: SecretPlace<'_> = SecretPlace { tenant: "t1", project: "p1", name: "NPM_TOKEN", version: 1 };

    fn key_file() -> (tempfile::TempDir, Keyring) {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::open_or_create(&directory.path().join("key")).unwrap();
        (directory, Keyring::new(DeploymentKey::File(file), vec![]))
    }

    /// A key in a file never waits.
    fn seal(
        value: &SecretBytes,
        place: &SecretPlace<'_>,
        keys: &Keyring,
    ) -> Result<SealedSecret, EnvelopeError> {
        super::seal(value, place, keys.newest()).now_or_never().unwrap()
    }

    fn open(
        sealed: &SealedSecret,
        place: &SecretPlace<'_>,
        keys: &Keyring,
    ) -> Result<SecretBytes, EnvelopeError> {
        super::open(sealed, place, keys).now_or_never().unwrap()
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
