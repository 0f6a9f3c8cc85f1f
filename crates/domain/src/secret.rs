//! The names of secrets. Their values are known only to the broker.

use crate::{ids::ProjectId, limits::SECRET_NAME_BYTES_MAX};
use std::{fmt, str::FromStr};

/// The name that stands in settings for the App of the deployment at its forge, and for no secret: the tenant's installation of the App opens the repository.
pub const FORGE_APP: &str = "GITHUB_APP";

/// The name of a secret: capital letters, digits and underscores, like that of a variable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretName(Box<str>);

/// The text is no name of a secret. It may be a value that somebody typed in the wrong place, so the error does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a secret has 1 to {SECRET_NAME_BYTES_MAX} capital letters, digits and underscores, and does not start with a digit"
)]
pub struct SecretNameError;

impl SecretName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let starts = text.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        if starts && text.len() <= SECRET_NAME_BYTES_MAX && text.bytes().all(is_plain) {
            Ok(Self(text.into()))
        } else {
            Err(SecretNameError)
        }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What names one secret of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretAddress {
    /// Its project; `None`: a secret of the whole tenant.
    pub project: Option<ProjectId>,
    /// Its name, unique in the project or among those of the tenant.
    pub name: SecretName,
}

impl SecretAddress {
    /// The project's id; empty for a secret of the tenant.
    pub fn scope(&self) -> &str {
        self.project.as_ref().map_or("", ProjectId::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_a_wrong_one_is_not_repeated() {
        let long = "A".repeat(SECRET_NAME_BYTES_MAX);
        for name in ["A", "_", "NPM_TOKEN", "_A1", long.as_str()] {
            assert_eq!(name.parse::<SecretName>().as_ref().map(SecretName::as_str), Ok(name));
        }
        let longer = format!("{long}A");
        for text in
            ["", "1A", "npm", "NPM-TOKEN", "NPM TOKEN", "A=hunter2", "A\0", "É", "A/B", longer.as_str()]
        {
            let error = text.parse::<SecretName>();
            assert!(error.is_err_and(|error| !error.to_string().contains("hunter2")), "{text}");
        }
    }
}
