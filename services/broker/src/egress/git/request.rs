//! What git asks for: the references of a repository, or a pack of its objects.

use super::refusal::GitRefusal;
use domain::egress::git::GitAddress;
use hyper::{Method, Uri};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitRequest {
    pub(super) repository: GitAddress,
    pub(super) action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The names of branches and tags, and what the server can do.
    Refs,
    Pack,
    /// What the server can do with a push. Never asked by the door of a session.
    PushRefs,
    /// A push. Never asked by the door of a session.
    Push,
}

impl Action {
    /// What stands behind the path of the repository.
    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::Refs => "/info/refs?service=git-upload-pack",
            Self::Pack => "/git-upload-pack",
            Self::PushRefs => "/info/refs?service=git-receive-pack",
            Self::Push => "/git-receive-pack",
        }
    }

    /// The type of the answer of a server that speaks the smart protocol.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Refs => "application/x-git-upload-pack-advertisement",
            Self::Pack => "application/x-git-upload-pack-result",
            Self::PushRefs => "application/x-git-receive-pack-advertisement",
            Self::Push => "application/x-git-receive-pack-result",
        }
    }
}

/// Reads `GET /<host>/<path>/info/refs?service=git-upload-pack` and `POST /<host>/<path>/git-upload-pack`.
///
/// # Errors
/// `Request`, `Push`, `Address`.
pub(super) fn parse(method: &Method, uri: &Uri) -> Result<GitRequest, GitRefusal> {
    if uri.authority().is_some() {
        return Err(GitRefusal::Request);
    }
    let (path, query) = (uri.path(), uri.query());
    let suffix = |text: &str| path.strip_suffix(text);
    let (repository, action) = if method == Method::GET {
        let repository = suffix("/info/refs").ok_or(GitRefusal::Request)?;
        match query {
            Some("service=git-upload-pack") => (repository, Action::Refs),
            Some("service=git-receive-pack") => return Err(GitRefusal::Push),
            _ => return Err(GitRefusal::Request),
        }
    } else if method == Method::POST && query.is_none() {
        match (suffix("/git-upload-pack"), suffix("/git-receive-pack")) {
            (Some(repository), _) => (repository, Action::Pack),
            (None, Some(_)) => return Err(GitRefusal::Push),
            (None, None) => return Err(GitRefusal::Request),
        }
    } else {
        return Err(GitRefusal::Request);
    };
    Ok(GitRequest { repository: address(repository)?, action })
}

/// Reads the repository `/<host>/<path>` of a request.
///
/// # Errors
/// `Request`, `Address`.
pub(super) fn address(repository: &str) -> Result<GitAddress, GitRefusal> {
    let place = repository.strip_prefix('/').ok_or(GitRefusal::Request)?;
    let (authority, path) = place.split_at(place.find('/').ok_or(GitRefusal::Request)?);
    // A slash at the end would be one more spelling of the same repository.
    if path.ends_with('/') {
        return Err(GitRefusal::Request);
    }
    Ok(GitAddress::parse(authority, path)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn read(request: &str) -> String {
        let (method, uri) = request.split_once(' ').unwrap();
        match parse(&method.parse().unwrap(), &uri.parse().unwrap()) {
            Ok(GitRequest { repository, action }) => format!("{repository}{}", action.target()),
            Err(refusal) => refusal.code().as_str().to_owned(),
        }
    }

    #[test]
    fn only_what_reads_a_repository_passes() {
        let refs = "/info/refs?service=git-upload-pack";
        for (request, want) in [
            (format!("GET /H.org/a/b.git{refs}"), format!("https://h.org/a/b.git{refs}")),
            (format!("GET /h.org:8443/a{refs}"), format!("https://h.org:8443/a{refs}")),
            ("POST /h.org/a/git-upload-pack".to_owned(), "https://h.org/a/git-upload-pack".to_owned()),
        ] {
            assert_eq!(read(&request), want);
        }
        for (request, code) in [
            ("GET /h.org/a/info/refs?service=git-receive-pack", "git_push_refused"),
            ("POST /h.org/a/git-receive-pack", "git_push_refused"),
            ("GET /h.org/a/info/refs", "git_request_refused"),
            ("GET /h.org/a/info/refs?service=git-upload-pack&x", "git_request_refused"),
            ("GET /h.org/a/info/refs?service=git-upload-archive", "git_request_refused"),
            ("GET /h.org/a/HEAD", "git_request_refused"),
            ("GET /h.org/a/objects/info/packs", "git_request_refused"),
            ("HEAD /h.org/a/info/refs?service=git-upload-pack", "git_request_refused"),
            ("POST /h.org/a/info/refs?service=git-upload-pack", "git_request_refused"),
            ("POST /h.org/a/git-upload-pack?x", "git_request_refused"),
            ("GET /h.org/a/git-upload-pack", "git_request_refused"),
            ("PUT /h.org/a/git-upload-pack", "git_request_refused"),
            ("CONNECT h.org:443", "git_request_refused"),
            ("GET http://h.org/a/info/refs?service=git-upload-pack", "git_request_refused"),
            ("GET /info/refs?service=git-upload-pack", "git_request_refused"),
            ("GET /h.org/info/refs?service=git-upload-pack", "git_request_refused"),
            ("GET /h.org//info/refs?service=git-upload-pack", "git_request_refused"),
            ("GET /h.org/a//info/refs?service=git-upload-pack", "git_request_refused"),
            ("GET //h.org/a/info/refs?service=git-upload-pack", "git_address_invalid"),
            ("GET /h.org//a/info/refs?service=git-upload-pack", "git_address_invalid"),
            ("GET /h.org/a/../b/info/refs?service=git-upload-pack", "git_address_invalid"),
            ("GET /h.org/a/%2e%2e/b/info/refs?service=git-upload-pack", "git_address_invalid"),
            ("GET /h.org/a%2fb/info/refs?service=git-upload-pack", "git_address_invalid"),
            ("GET /h.org/a%252fb/info/refs?service=git-upload-pack", "git_address_invalid"),
            ("GET /u@h.org/a/info/refs?service=git-upload-pack", "git_address_invalid"),
            ("GET /127.0.0.1/a/info/refs?service=git-upload-pack", "git_address_invalid"),
        ] {
            assert_eq!(read(request), code, "{request}");
        }
    }
}
