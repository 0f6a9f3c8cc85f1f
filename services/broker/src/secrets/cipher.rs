//! AES-256-GCM with a random nonce. The bytes are the nonce, and then the text with its tag.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    error::Unspecified,
};
use zeroize::Zeroizing;

/// Encrypts a text that opens only with the same key and context.
pub(super) fn encrypt(key: &[u8], context: &[u8], text: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key)?;
    // The text is encrypted in place, so no copy of it stays. With room for the tag, the bytes do not move meanwhile.
    let mut bytes = Vec::with_capacity(text.len() + AES_256_GCM.tag_len());
    bytes.extend_from_slice(text);
    let nonce = key.seal_in_place_append_tag(Aad::from(context), &mut bytes)?;
    Ok([&nonce.as_ref()[..], &bytes].concat())
}

/// Decrypts what [`encrypt`] gave.
pub(super) fn decrypt(key: &[u8], context: &[u8], bytes: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key)?;
    let (nonce, text) = bytes.split_at_checked(NONCE_LEN).ok_or(Unspecified)?;
    let mut text = Zeroizing::new(text.to_vec());
    let length =
        key.open_in_place(Nonce::try_assume_unique_for_key(nonce)?, Aad::from(context), &mut text)?.len();
    text.truncate(length);
    Ok(text)
}
