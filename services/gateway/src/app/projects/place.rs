//! The places by which clients know a project, in addition to its name. A client of OpenCode names the absolute path of its directory; it finds
//! the project of exactly this name, else the project whose source came from this directory or from one above it. The command line also knows the identity of
//! a repository, which is its git remote, else its first commit, and finds the project of the same one, in whatever directory it is.

use crate::errors::{error::Error, invalid::Invalid};
use domain::{
    limits,
    session::{Origin, Source, repository_name},
    text::is_object_id,
};
use store::tenant::projects::Surroundings;

/// Longest URL of a remote; bytes. Beyond it: `directory_invalid`.
const REMOTE_BYTES_MAX: usize = 2_048;

/// The prefix of a place that is a first commit. A remote begins with its host, and a directory with a slash.
const ROOT_COMMIT: &str = "commit:";

/// Where a client has the repository of a project. Empty texts: unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RepositoryLocation {
    /// The absolute path on the client's machine.
    pub(crate) directory: String,
    /// The URL of its git remote.
    pub(crate) remote: String,
    /// The first commit of a repository without a remote.
    pub(crate) root_commit: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PlaceNames {
    pub(super) directory: Option<String>,
    /// The names of the repository, wherever it is.
    pub(super) identities: Vec<String>,
}

impl PlaceNames {
    pub(super) fn all(&self) -> Vec<String> {
        self.directory.iter().chain(&self.identities).cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.directory.is_none() && self.identities.is_empty()
    }

    /// Whether a project with these identities, which was found by the directory, is that of another repository. A repository may have got its remote since it
    /// was known by its first commit.
    pub(super) fn contradict(&self, known: &[String]) -> bool {
        let is_ours = known.iter().any(|identity| self.identities.contains(identity));
        let has_remote = known.iter().any(|identity| !identity.starts_with(ROOT_COMMIT));
        let is_root_commit = self.identities.iter().any(|identity| identity.starts_with(ROOT_COMMIT));
        !self.identities.is_empty() && !known.is_empty() && !is_ours && (has_remote || is_root_commit)
    }
}

impl RepositoryLocation {
    /// The names of the place. The URL of a source is a remote too.
    ///
    /// # Errors
    /// `directory_invalid`.
    pub(super) fn names(&self, source: &Source) -> Result<PlaceNames, Error> {
        let Self { directory, remote, root_commit } = self;
        if !root_commit.is_empty() && !is_object_id(root_commit) {
            let message = "root_commit must be the id of a commit: 40 or 64 lower-case hexadecimal digits";
            return Err(Invalid::Directory.because(message));
        }
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
            Origin::GitUrl(url) => repository_name(url),
            Origin::Empty | Origin::Bundle(_) => None,
        };
        let directory = Some(directory.clone()).filter(|directory| !directory.is_empty());
        let mut identities: Vec<String> = repository_name(remote).into_iter().chain(of_source).collect();
        if identities.is_empty() && !root_commit.is_empty() {
            identities.push(format!("{ROOT_COMMIT}{root_commit}"));
        }
        Ok(PlaceNames { directory, identities })
    }
}

/// The path by which clients that browse folders find a project or a worktree.
pub(crate) fn listed(name: &str) -> String {
    if name.starts_with('/') { name.to_owned() } else { format!("/{name}") }
}

/// What is around an unknown directory: the directories above it, and the project or worktree that is listed as `/NAME`. `None`: it is no
/// absolute path.
pub(super) fn surroundings(directory: &str) -> Option<Surroundings> {
    let listed = directory.strip_prefix('/')?.trim_end_matches('/').to_owned();
    let whole = directory.trim_end_matches('/');
    let above = whole.match_indices('/').filter(|(at, _)| *at > 0).map(|(at, _)| whole[..at].to_owned());
    let itself = (whole.len() < directory.len() && !whole.is_empty()).then(|| whole.to_owned());
    Some(Surroundings { above: above.chain(itself).collect(), listed })
}

/// A remote as pushes use it, without a user or a password: `https://host/path`, or `ssh://git@host/path`, which means the same repository over https. `None`
/// for all others.
pub(crate) fn claimed_remote(url: &str) -> Option<String> {
    let is_clean = !url.chars().any(|letter| letter.is_whitespace() || letter.is_control());
    if !is_clean || url.len() > REMOTE_BYTES_MAX {
        return None;
    }
    let (scheme, authority, path) = match url.split_once("://") {
        Some((scheme @ ("https" | "ssh"), rest)) => {
            let (authority, path) = rest.split_once('/')?;
            (scheme, authority, path)
        }
        Some(_) => return None,
        // git@host:path is ssh in git's short form.
        None => {
            let (host, path) = url.split_once(':').filter(|(host, _)| !host.contains('/'))?;
            ("ssh", host, path.trim_start_matches('/'))
        }
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let user = if scheme == "ssh" { "git@" } else { "" };
    (!host.is_empty() && !path.is_empty()).then(|| format!("{scheme}://{user}{host}/{path}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_claimed_remote_has_no_credential_and_is_a_place_for_pushes() {
        for (url, want) in [
            ("https://example.com/me/app.git", Some("https://example.com/me/app.git")),
            ("https://ann:hun@ter2@example.com:8443/me/app", Some("https://example.com:8443/me/app")),
            ("ssh://ann:hunter2@example.com:22/me/app.git", Some("ssh://git@example.com:22/me/app.git")),
            ("git@example.com:me/app.git", Some("ssh://git@example.com/me/app.git")),
            ("example.com:/me/app.git", Some("ssh://git@example.com/me/app.git")),
            ("", None),
            ("/srv/app", None),
            ("../app", None),
            ("file:///srv/app", None),
            ("http://example.com/app", None),
            ("ext::sh -c id", None),
            ("https://example.com", None),
            ("https://example.com/a\nb", None),
        ] {
            assert_eq!(claimed_remote(url).as_deref(), want, "{url}");
        }
        assert_eq!(claimed_remote(&format!("https://h/{}", "a".repeat(REMOTE_BYTES_MAX))), None);
    }

    #[test]
    fn the_surroundings_of_a_directory_are_all_directories_above_it() {
        for (directory, above, listed) in [
            ("/home/me/app/src", &["/home", "/home/me", "/home/me/app"][..], "home/me/app/src"),
            ("/app/", &["/app"], "app"),
            ("/app", &[], "app"),
            ("/", &[], ""),
        ] {
            let want = Surroundings {
                above: above.iter().map(|&it| it.to_owned()).collect(),
                listed: listed.to_owned(),
            };
            assert_eq!(surroundings(directory), Some(want), "{directory}");
        }
        assert_eq!(surroundings("app/src"), None, "no path of a machine");
    }

    fn location(directory: &str, remote: &str, root_commit: &str) -> RepositoryLocation {
        RepositoryLocation {
            directory: directory.to_owned(),
            remote: remote.to_owned(),
            root_commit: root_commit.to_owned(),
        }
    }

    #[test]
    fn a_place_has_a_directory_and_an_identity() {
        let source = Source { origin: Origin::GitUrl("https://b.org/x".to_owned()), ..Source::default() };
        let commit = "ab".repeat(20);
        let names = |location: RepositoryLocation, source: &Source| location.names(source).unwrap().all();
        let all = names(location("/home/me/app", "git@a.org:x", ""), &source);
        assert_eq!(all, ["/home/me/app", "a.org/x", "b.org/x"]);
        let local = names(location("/home/me/app", "/srv/x", &commit), &Source::default());
        assert_eq!(local, ["/home/me/app", &format!("commit:{commit}")]);
        let known = names(location("", "git@a.org:x", &commit), &Source::default());
        assert_eq!(known, ["a.org/x"], "a remote says more");
        assert!(RepositoryLocation::default().names(&Source::default()).unwrap().is_empty());
        for wrong in [
            location("app", "", ""),
            location(&"/".repeat(300), "", ""),
            location("/a\0", "", ""),
            location("", &"x".repeat(3_000), ""),
            location("", "", "HEAD"),
        ] {
            assert_eq!(wrong.names(&Source::default()).unwrap_err().code(), "directory_invalid");
        }
    }

    #[test]
    fn a_directory_is_not_enough_if_another_repository_was_there() {
        let (one, other) = (format!("commit:{}", "1".repeat(40)), format!("commit:{}", "2".repeat(40)));
        for (ours, known, want) in [
            (&["a.org/x"][..], &["a.org/y"][..], true),
            (&["a.org/x"], &["a.org/y", "a.org/x"], false),
            (&["a.org/x"], &[&one], false),
            (&[&one], &[&other], true),
            (&[&one], &["a.org/x"], true),
            (&["a.org/x"], &[], false),
            (&[], &["a.org/x"], false),
        ] {
            let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
            let names = PlaceNames { directory: Some("/d".to_owned()), identities: texts(ours) };
            assert_eq!(names.contradict(&texts(known)), want, "{ours:?} {known:?}");
        }
    }
}
