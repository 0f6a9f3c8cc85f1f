//! What opens a repository at its server: the value of a secret, as a header.

use super::refusal::GitRefusal;
use crate::{
    credential::{self, basic},
    secrets::vault::{OpenedSecret, Vault},
};
use chassis::secret::SecretBytes;
use domain::{
    ids::{ProjectId, TenantId},
    secret::SecretName,
};
use hyper::header::HeaderValue;

/// The user of a token. Servers of git look only at the password then.
const TOKEN_USER: &str = "x-access-token";

/// A secret as it is shown to a server.
pub(crate) struct GitCredential {
    pub(crate) version: u64,
    /// It does not print.
    pub(crate) authorization: HeaderValue,
}

/// Opens the secret of the project, or else that of the tenant, for `purpose`: the setting that names it. Nothing is kept: a secret that was changed or deleted counts from the next request on.
///
/// # Errors
/// `SecretMissing`, `SecretInvalid`, `SecretUnavailable`.
pub(crate) async fn open(
    vault: &Vault,
    tenant: TenantId,
    project: Option<&ProjectId>,
    name: &SecretName,
    purpose: &str,
) -> Result<GitCredential, GitRefusal> {
    match vault.find(tenant, project, name, purpose).await {
        Ok(Some(OpenedSecret { version, value })) => {
            let authorization = parse(&value).ok_or_else(|| GitRefusal::SecretInvalid(name.clone()))?;
            Ok(GitCredential { version, authorization })
        }
        Ok(None) => Err(GitRefusal::SecretMissing(name.clone())),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, secret.name = %name, "a secret for git cannot be opened");
            Err(GitRefusal::SecretUnavailable(name.clone()))
        }
    }
}

/// Reads `user:password` or a token. `None`: it is neither.
fn parse(value: &SecretBytes) -> Option<HeaderValue> {
    let text = credential::text(value)?;
    let is_clean = !text.is_empty() && !text.chars().any(char::is_control);
    match text.split_once(':') {
        _ if !is_clean => None,
        Some(("", _) | (_, "")) => None,
        Some((user, password)) => basic(user, password),
        None => text.bytes().all(|byte| byte.is_ascii_graphic()).then(|| basic(TOKEN_USER, text)).flatten(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    #[test]
    fn a_secret_is_a_password_or_a_token() {
        let read = |text: &str| parse(&SecretBytes::of(text.as_bytes().to_vec()));
        for (text, pair) in [
            ("ann:hunter2\n", "ann:hunter2"),
            ("ann:a:b", "ann:a:b"),
            ("ghp_abc\r\n", "x-access-token:ghp_abc"),
        ] {
            let header = read(text).unwrap();
            assert!(header.is_sensitive(), "it does not print");
            assert_eq!(header.to_str().unwrap(), format!("Basic {}", STANDARD.encode(pair)));
        }
        for text in ["", "\n", ":x", "ann:", "two words", "a\nb", "ann:a\nb", "é"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
