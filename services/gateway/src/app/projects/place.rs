//! The places by which clients know a project, in addition to its name. A client of OpenCode names the absolute path of its directory; it finds
//! the project of exactly this name, else the project whose source came from this directory. The command line also knows the git
//! remote of a directory, and finds the project whose source has the same one.

use crate::ground::{error::Error, invalid::Invalid};
use domain::{
    limits,
    session::{Origin, Source},
};

/// Longest URL of a remote; bytes. Beyond it: `directory_invalid`.
const REMOTE_BYTES_MAX: usize = 2_048;

/// Where a client has the repository of a project. Empty texts: unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RepositoryLocation {
    /// The absolute path on the client's machine.
    pub(crate) directory: String,
    /// The URL of its git remote.
    pub(crate) remote: String,
}

impl RepositoryLocation {
    /// The names of the place, the directory first. The URL of a source is a remote too.
    ///
    /// # Errors
    /// `directory_invalid`.
    pub(super) fn names(&self, source: &Source) -> Result<Vec<String>, Error> {
        let Self { directory, remote } = self;
        if !directory.is_empty() && !directory.starts_with('/') {
            return Err(Invalid::Directory.because("a directory must be an absolute path"));
        }
        if directory.len() > limits::NAME_BYTES_MAX || remote.len() > REMOTE_BYTES_MAX {
            let message = format!(
                "a directory must have at most {} bytes, and a remote at most {REMOTE_BYTES_MAX}",
                limits::NAME_BYTES_MAX
            );
            return Err(Invalid::Directory.because(message));
        }
        if directory.contains('\0') || remote.contains('\0') {
            return Err(Invalid::Directory.because("a directory and a remote must not contain zero bytes"));
        }
        let of_source = match &source.origin {
            Origin::GitUrl(url) => remote_name(url),
            Origin::Empty | Origin::Bundle(_) => None,
        };
        let directory = Some(directory.clone()).filter(|directory| !directory.is_empty());
        Ok(directory.into_iter().chain(remote_name(remote)).chain(of_source).collect())
    }
}

/// The host and path of a remote: the same for all its protocols and users. `None` for a repository without a host.
fn remote_name(url: &str) -> Option<String> {
    let (authority, path) = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?,
        // git@host:path is ssh in git's short form.
        None => url.split_once(':').filter(|(host, _)| !host.contains('/'))?,
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split(':').next().unwrap_or_default().to_lowercase();
    let path = path.trim_matches('/').trim_end_matches(".git");
    (!host.is_empty() && !path.is_empty()).then(|| format!("{host}/{path}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn all_urls_of_a_repository_have_one_name() {
        for url in [
            "https://example.com/me/app.git",
            "https://user:secret@Example.com/me/app/",
            "ssh://git@example.com:22/me/app.git",
            "git@example.com:me/app.git",
        ] {
            assert_eq!(remote_name(url).as_deref(), Some("example.com/me/app"), "{url}");
        }
        for url in ["", "file:///srv/app", "/srv/app", "../app", "https://example.com", "https:///x"] {
            assert_eq!(remote_name(url), None, "{url}");
        }
    }

    #[test]
    fn a_place_has_a_directory_and_remotes() {
        let place = |directory: &str, remote: &str| RepositoryLocation {
            directory: directory.to_owned(),
            remote: remote.to_owned(),
        };
        let source = Source { origin: Origin::GitUrl("https://b.org/x".to_owned()), ..Source::default() };
        let names = place("/home/me/app", "git@a.org:x").names(&source).unwrap();
        assert_eq!(names, ["/home/me/app", "a.org/x", "b.org/x"]);
        assert_eq!(RepositoryLocation::default().names(&Source::default()).unwrap(), Vec::<String>::new());
        for wrong in
            [place("app", ""), place(&"/".repeat(300), ""), place("/a\0", ""), place("", &"x".repeat(3_000))]
        {
            assert_eq!(wrong.names(&Source::default()).unwrap_err().code(), "directory_invalid");
        }
    }
}
