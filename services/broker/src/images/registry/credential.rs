//! What opens an image at its registry: the value of a secret.

use crate::credential;
use chassis::secret::SecretBytes;
use domain::secret::SecretName;
use std::fmt;
use zeroize::Zeroizing;

/// The user of an identity token, as credential helpers write it.
const IDENTITY_USER: &str = "<token>";

#[derive(PartialEq, Eq)]
pub enum Credential {
    /// For Basic, or for the token service.
    Password {
        /// The user; it has no colon.
        user: String,
        /// Everything behind the first colon.
        password: Zeroizing<String>,
    },
    /// The token service exchanges it for a bearer token.
    Identity(Zeroizing<String>),
    /// The registry itself takes it.
    Bearer(Zeroizing<String>),
}

/// A credential, and the secret that it is from.
#[derive(Debug)]
pub struct NamedCredential {
    pub name: SecretName,
    pub version: u64,
    pub credential: Credential,
}

impl Credential {
    /// Parses the value of a secret. `None`: it is no credential.
    pub fn parse(value: &SecretBytes) -> Option<Self> {
        let text = credential::text(value)?;
        let owned = |text: &str| Zeroizing::new(text.to_owned());
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        match text.split_once(':') {
            Some((IDENTITY_USER, token)) => is_word(token).then(|| Self::Identity(owned(token))),
            Some(("", _) | (_, "")) => None,
            Some((user, password)) => {
                Some(Self::Password { user: user.to_owned(), password: owned(password) })
            }
            None => is_word(text).then(|| Self::Bearer(owned(text))),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Option<Credential> {
        Credential::parse(&SecretBytes::of(text.as_bytes().to_vec()))
    }

    #[test]
    fn a_secret_is_a_password_an_identity_token_or_a_bearer_token() {
        let password = |user: &str, password: &str| {
            Some(Credential::Password { user: user.to_owned(), password: password.to_owned().into() })
        };
        assert_eq!(parse("ann:hunter2\n"), password("ann", "hunter2"));
        assert_eq!(parse("_json_key:{\n \"a\": 1}\r\n"), password("_json_key", "{\n \"a\": 1}"));
        assert_eq!(parse("<token>:abc"), Some(Credential::Identity("abc".to_owned().into())));
        assert_eq!(parse("eyJ.a.b\n"), Some(Credential::Bearer("eyJ.a.b".to_owned().into())));
        for text in ["", "\n", ":x", "ann:", "<token>:", "<token>:a b", "two words", "a\nb", "é"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(Credential::parse(&SecretBytes::of(vec![0xff])), None);
    }

    #[test]
    fn a_credential_does_not_print() {
        assert_eq!(format!("{:?}", parse("ann:hunter2")), "Some(***)");
    }
}
