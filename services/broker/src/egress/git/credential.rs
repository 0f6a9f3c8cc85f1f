//! What opens a repository at its server: the value of a secret, as a header.

use crate::{
    credential::{self, basic},
    forge::{
        error::ForgeError,
        github::{GitUse, Github},
    },
    secrets::vault::{OpenedSecret, SecretUse, Vault, VaultError},
};
use chassis::secret::SecretBytes;
use domain::{
    egress::{git::GitAddress, secret_servers::SecretDestination},
    ids::{ProjectId, TenantId},
    secret::{FORGE_APP, SecretName},
};
use hyper::header::HeaderValue;
use std::sync::Arc;

/// The user of a token. Servers of git look only at the password then.
const TOKEN_USER: &str = "x-access-token";
/// The version of a credential that is no secret.
const APP_VERSION: u64 = 0;

/// Why a secret opens no repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretRefusal {
    /// There is no such secret.
    #[error("there is no secret {name}, which {setting} names; set it with `flotilla secret set {name}`")]
    Missing {
        name: SecretName,
        /// The setting that has the name.
        setting: &'static str,
    },
    /// Its value is no credential.
    #[error(
        "the value of the secret {0} is neither a token nor user:password; set it again with `flotilla secret set {0}`"
    )]
    Invalid(SecretName),
    /// It is for other servers. The text says for which.
    #[error("{0}")]
    NotFor(String),
    /// It cannot be opened at this moment.
    #[error("the secret {0} cannot be opened; try again later")]
    Unavailable(SecretName),
    /// The settings want the App of the forge, which has no installation for the repository.
    #[error(
        "{setting} names {FORGE_APP}, but no installation of the App that belongs to this tenant covers the repository"
    )]
    NotInstalled {
        /// The setting that wants it.
        setting: &'static str,
    },
}

/// The use of a secret that a setting names, at the server of a repository.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RepositoryUse<'a> {
    pub(crate) setting: &'static str,
    pub(crate) repository: &'a GitAddress,
    pub(crate) git_use: GitUse,
}

/// What opens repositories: the secrets of tenants, and the App at the forge.
#[derive(Debug, Clone)]
pub struct GitCredentials {
    pub(crate) vault: Arc<Vault>,
    github: Arc<Github>,
}

/// A secret as it is shown to a server.
pub(crate) struct GitCredential {
    pub(crate) version: u64,
    /// It does not print.
    pub(crate) authorization: HeaderValue,
}

impl GitCredentials {
    pub fn new(vault: Arc<Vault>, github: Arc<Github>) -> Self {
        Self { vault, github }
    }

    /// Opens the secret of the project, or else that of the tenant. Nothing is kept: a secret that was changed or deleted counts from the next request on.
    ///
    /// # Errors
    /// Those of [`SecretRefusal`].
    pub(crate) async fn open(
        &self,
        tenant: TenantId,
        project: Option<&ProjectId>,
        name: &SecretName,
        repository_use: RepositoryUse<'_>,
    ) -> Result<GitCredential, SecretRefusal> {
        if name.as_str() == FORGE_APP {
            return self.open_as_app(tenant, name, repository_use).await;
        }
        let RepositoryUse { setting, repository, .. } = repository_use;
        let destination = SecretDestination::Server(Some(repository));
        match self.vault.find(tenant, project, name, SecretUse { purpose: setting, destination }).await {
            Ok(Some(OpenedSecret { version, value })) => {
                let authorization = parse(&value).ok_or_else(|| SecretRefusal::Invalid(name.clone()))?;
                Ok(GitCredential { version, authorization })
            }
            Ok(None) => Err(SecretRefusal::Missing { name: name.clone(), setting }),
            Err(error @ VaultError::NotFor { .. }) => Err(SecretRefusal::NotFor(error.to_string())),
            Err(error) => {
                if !error.is_of_key_service() {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, secret.name = %name, "a secret for git cannot be opened");
                }
                Err(SecretRefusal::Unavailable(name.clone()))
            }
        }
    }

    /// Opens the repository with a token that the App gets for it alone.
    async fn open_as_app(
        &self,
        tenant: TenantId,
        name: &SecretName,
        RepositoryUse { setting, repository, git_use }: RepositoryUse<'_>,
    ) -> Result<GitCredential, SecretRefusal> {
        match self.github.git_authorization(tenant, repository, git_use).await {
            Ok(Some(authorization)) => Ok(GitCredential { version: APP_VERSION, authorization }),
            // The App may be installed for other repositories of the account only.
            Ok(None) | Err(ForgeError::NotFound | ForgeError::Refused(_) | ForgeError::AppMissing) => {
                Err(SecretRefusal::NotInstalled { setting })
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, repository = %repository, "the App gets no token for a repository");
                Err(SecretRefusal::Unavailable(name.clone()))
            }
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
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
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
