//! What the credentials of registries, of servers of git and of key services share: the text of a secret, and headers that do not print.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chassis::secret::SecretBytes;
use reqwest::header::HeaderValue;
use zeroize::Zeroizing;

/// The value of a secret without the line break at its end. `None`: it is no text.
pub(crate) fn text(value: &SecretBytes) -> Option<&str> {
    let text = std::str::from_utf8(value.expose()).ok()?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    Some(text.strip_suffix('\r').unwrap_or(text))
}

pub(crate) fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    let pair = Zeroizing::new(format!("{user}:{password}"));
    sensitive(&Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes()))))
}

/// The header of a token. `None`: no header can carry it.
pub(crate) fn bearer(token: &str) -> Option<HeaderValue> {
    sensitive(&Zeroizing::new(format!("Bearer {token}")))
}

/// A header that does not print, and that HTTP/2 does not keep in its tables.
pub(crate) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_header_does_not_print() {
        assert_eq!(format!("{:?}", basic("ann", "hunter2")), "Some(Sensitive)");
        assert_eq!(basic("ann", "hunter2").unwrap().as_bytes(), b"Basic YW5uOmh1bnRlcjI=");
    }
}
