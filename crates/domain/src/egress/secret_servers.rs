//! The servers that may get the value of a secret.

use super::git::{GitAddress, GitAddressError, GitPrefix};
use crate::limits::SECRET_URLS_MAX;

/// The servers that may get the value of a secret: those below these beginnings of URLs. Empty: whichever the settings name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretServers(Vec<GitPrefix>);

/// Where the value of a secret would go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretDestination<'a> {
    /// To a server, for a repository or an image there. `None`: it has no name of the internet.
    Server(Option<&'a GitAddress>),
    /// To the script of a setup or an install, which can send it to each host that it reaches.
    Script,
}

/// Why texts name no servers. It does not repeat them: one may be a value that somebody typed in the wrong place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretServersError {
    /// One is no beginning of URLs.
    #[error("a URL for which a secret is, such as https://github.com/acme/, cannot be one: {0}")]
    Url(#[from] GitAddressError),
    #[error("a secret is for at most {SECRET_URLS_MAX} URLs")]
    TooMany,
}

impl SecretServers {
    /// Reads beginnings of URLs: `https://github.com/acme/`.
    ///
    /// # Errors
    /// By the first wrong one.
    pub fn parse(urls: &[String]) -> Result<Self, SecretServersError> {
        if urls.len() > SECRET_URLS_MAX {
            return Err(SecretServersError::TooMany);
        }
        Ok(Self(urls.iter().map(|url| GitPrefix::parse(url)).collect::<Result<_, _>>()?))
    }

    /// The beginnings of URLs.
    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// Whether the value may go there.
    pub fn allow(&self, destination: SecretDestination<'_>) -> bool {
        self.0.is_empty()
            || match destination {
                SecretDestination::Server(Some(address)) => self.0.iter().any(|url| url.covers(address)),
                SecretDestination::Server(None) | SecretDestination::Script => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_goes_only_to_the_servers_that_it_is_for() {
        let servers = |urls: &[&str]| {
            SecretServers::parse(&urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>())
        };
        let bound = servers(&["https://github.com/acme/", "https://ghcr.io/"]).unwrap_or_default();
        let allows = |servers: &SecretServers, url: &str| {
            servers.allow(SecretDestination::Server(GitAddress::parse_url(url).ok().as_ref()))
        };
        for (url, want) in [
            ("https://github.com/acme/app.git", true),
            ("https://ghcr.io/other/image", true),
            ("https://github.com/acme-labs/app.git", false),
            ("https://github.com:8443/acme/app", false),
            ("https://evil.example/acme/app", false),
            ("https://127.0.0.1/acme/app", false),
        ] {
            assert_eq!(allows(&bound, url), want, "{url}");
            assert!(allows(&SecretServers::default(), url), "it is for all");
        }
        assert!(!bound.allow(SecretDestination::Script), "a script could send it anywhere");
        assert!(SecretServers::default().allow(SecretDestination::Script));
        assert_eq!(bound.urls(), ["https://github.com/acme/", "https://ghcr.io/"]);
        let many = vec!["https://a.dev/"; SECRET_URLS_MAX + 1];
        assert_eq!(servers(&many), Err(SecretServersError::TooMany));
        for wrong in ["hunter2", "http://a.dev/", "https://user:hunter2@a.dev/", "https://10.0.0.1/"] {
            let error = servers(&[wrong]);
            assert!(error.is_err_and(|error| !error.to_string().contains("hunter2")), "{wrong}");
        }
    }
}
