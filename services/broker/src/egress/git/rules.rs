//! The repositories that a session may read, as the file of its door keeps them: those with a credential, which is the name of a secret and never its value,
//! and a public one, of which the door reads only objects of Git LFS.

use domain::{
    egress::git::{GIT_CREDENTIALS_MAX, GitAddress, GitAddressError, GitPrefix, find_longest},
    ids::ProjectId,
    secret::{SecretName, SecretNameError},
};
use rpc::v1::ErrorCode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The rules. `{"project": "prj_…", "credentials": {"https://github.com/acme/": "GITHUB_TOKEN"}}`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitRules {
    /// The project whose secrets come before those of the tenant.
    #[serde(default)]
    pub project: Option<String>,
    /// The name of a secret for each prefix of URLs.
    #[serde(default)]
    pub credentials: BTreeMap<String, String>,
    /// The URL of the public repository. Brokers of earlier versions wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitRulesError {
    /// A prefix is none. The text may hold a password, so the error does not repeat it.
    #[error("the prefix of a git credential cannot be one: {0}")]
    Prefix(#[from] GitAddressError),
    /// The URL of the public repository is none. It may hold a password, so the error does not repeat it.
    #[error("the URL of the public repository cannot be one: {0}")]
    Public(#[source] GitAddressError),
    /// Too many prefixes.
    #[error("there are more than {GIT_CREDENTIALS_MAX} prefixes with a git credential")]
    TooMany,
    /// The name of a secret is wrong.
    #[error(transparent)]
    Secret(#[from] SecretNameError),
    #[error("the project's id is malformed")]
    Project,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct GitAccess {
    /// The project whose secrets come before those of the tenant.
    project: Option<ProjectId>,
    secrets: BTreeMap<GitPrefix, SecretName>,
    /// The public repository, with the ending of a repository.
    public: Option<GitAddress>,
}

impl GitRules {
    /// Reads the prefixes and the names.
    ///
    /// # Errors
    /// By the first wrong one.
    pub fn parse(&self) -> Result<GitAccess, GitRulesError> {
        if self.credentials.len() > GIT_CREDENTIALS_MAX {
            return Err(GitRulesError::TooMany);
        }
        let read = |(prefix, secret): (&String, &String)| -> Result<_, GitRulesError> {
            Ok((GitPrefix::parse(prefix)?, secret.parse()?))
        };
        let secrets = self.credentials.iter().map(read).collect::<Result<_, _>>()?;
        let project = self.project.as_ref().map(|project| project.parse()).transpose();
        let public = self.public.as_ref().map(|url| GitAddress::parse_url(url)).transpose();
        let public = public.map_err(GitRulesError::Public)?.map(GitAddress::with_repository_ending);
        Ok(GitAccess { project: project.map_err(|_| GitRulesError::Project)?, secrets, public })
    }
}

impl GitRulesError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Prefix(_) | Self::TooMany => ErrorCode::GitPrefixInvalid,
            Self::Public(_) => ErrorCode::GitAddressInvalid,
            Self::Secret(_) => ErrorCode::SecretNameInvalid,
            Self::Project => ErrorCode::ArgumentInvalid,
        }
    }
}

impl GitAccess {
    /// The longest prefix that covers an address, and its secret.
    pub(super) fn find(&self, address: &GitAddress) -> Option<(&GitPrefix, &SecretName)> {
        let prefix = find_longest(self.secrets.keys(), address)?;
        self.secrets.get_key_value(prefix)
    }

    /// Whether an address is that of the public repository. A prefix that covers it comes first.
    pub(super) fn is_public(&self, address: &GitAddress) -> bool {
        let address = address.clone().with_repository_ending();
        self.public.as_ref() == Some(&address) && self.find(&address).is_none()
    }

    /// The project whose secrets come before those of the tenant.
    pub(in crate::egress) fn project(&self) -> Option<&ProjectId> {
        self.project.as_ref()
    }

    pub fn prefixes(&self) -> impl Iterator<Item = &GitPrefix> {
        self.secrets.keys()
    }
}
