//! Checks that several use cases share.

use crate::{
    errors::{error::Error, invalid::Invalid},
    state::State,
};
use domain::{conversation::message::ModelRef, limits, text};

/// Bytes of an idempotency key. Beyond it: `idempotency_key_too_long`.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// Checks a name or a title.
///
/// # Errors
/// `name_empty`, `name_too_long`.
pub(in crate::app) fn name(name: &str) -> Result<String, Error> {
    if name.trim().is_empty() {
        return Err(Invalid::NameEmpty.because("the name is empty"));
    }
    if name.len() > limits::NAME_BYTES_MAX {
        let message =
            format!("the name is {} bytes, the limit is {} bytes", name.len(), limits::NAME_BYTES_MAX);
        return Err(Invalid::NameTooLong.because(message));
    }
    Ok(text::without_nul(name).into_owned())
}

/// Checks that an idempotency key can be stored.
///
/// # Errors
/// `idempotency_key_too_long`, `idempotency_key_invalid`.
pub(in crate::app) fn idempotency_key(key: &str) -> Result<(), Error> {
    let limit = IDEMPOTENCY_KEY_BYTES_MAX;
    if key.len() > limit {
        let message = format!("the idempotency key is {} bytes, the limit is {limit} bytes", key.len());
        return Err(Invalid::IdempotencyKeyTooLong.because(message));
    }
    if key.contains('\0') {
        return Err(Invalid::IdempotencyKey.because("an idempotency key must not contain zero bytes"));
    }
    Ok(())
}

/// Checks that the workers serve a model.
///
/// # Errors
/// `model_unknown`.
pub(in crate::app) fn model(state: &State, model: Option<&ModelRef>) -> Result<(), Error> {
    let Some(model) = model.filter(|model| !state.models.contains(model)) else { return Ok(()) };
    let name = |model: &ModelRef| format!("{}/{}", model.provider_id, model.model_id);
    let available: Vec<String> = state.models.iter().map(name).collect();
    let unknown = name(model);
    let unknown = text::head(&unknown, limits::NAME_BYTES_MAX);
    let message = format!("no such model: {unknown}; available: {}", available.join(", "));
    Err(Invalid::ModelUnknown.because(message))
}
