//! Prefixes of the URLs of git repositories, for which settings name a credential, and the addresses below them. Both have one spelling, so that what is
//! compared is what is asked.

use super::host::HostName;
use crate::text::percent_decode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use std::{collections::BTreeSet, fmt, fmt::Write as _};

/// Prefixes that have a credential. Beyond it: `settings_invalid`, `config_invalid` or `git_prefix_invalid`.
pub const GIT_CREDENTIALS_MAX: usize = 32;
/// Bytes of a prefix or of the URL of a repository: the usual limit of servers. Beyond it: `settings_invalid`, `config_invalid`, `git_prefix_invalid` or
/// `url_not_allowed`.
pub const GIT_URL_BYTES_MAX: usize = 2_048;
/// Where git finds the door of its session to the servers of git.
pub const GIT_DOOR: &str = "http://127.0.0.1:3129/";
/// The port of a URL that names none.
const HTTPS_PORT: u16 = 443;
/// The port of ssh. A URL that names another one is none of a prefix.
const SSH_PORT: &str = "22";
/// The user of ssh at servers of git.
const SSH_USER: &str = "git@";
/// The ending of the path of a repository, which most servers let clients leave out.
const REPOSITORY_ENDING: &str = ".git";
/// What a segment of a path shows as it is. Everything else is encoded.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address of a repository, or of something in it, at a server with TLS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GitAddress {
    host: HostName,
    port: u16,
    /// Each encoded in one way; none is empty, `.` or `..`.
    segments: Vec<String>,
}

/// The beginning of addresses: a directory with all that is in it, or a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GitPrefix {
    address: GitAddress,
    /// Whether only what is below it counts, and not itself: it was written with a slash at its end.
    is_directory: bool,
}

/// Why a text is no address or no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GitAddressError {
    /// It is longer than [`GIT_URL_BYTES_MAX`].
    #[error("it is too long")]
    TooLong,
    /// Only https has a place for a credential.
    #[error("it does not begin with https://")]
    Scheme,
    /// It has a user or a password.
    #[error("it names a user")]
    User,
    /// The host is no name.
    #[error("its host is not a name of the internet")]
    Host,
    /// The port is no number from 1 to 65535.
    #[error("its port is no number")]
    Port,
    /// It has a query or a fragment.
    #[error("it has a query or a fragment")]
    Query,
    /// A part of the path is empty, `.` or `..`, or hides a slash or another percent sign.
    #[error("a part of its path is empty or a dot, or hides a slash")]
    Path,
}

impl GitAddress {
    /// Reads a host, perhaps with a port, and a path: nothing, or a slash and segments, perhaps with one slash at its end.
    ///
    /// # Errors
    /// By the first thing that is wrong.
    pub fn parse(authority: &str, path: &str) -> Result<Self, GitAddressError> {
        if authority.len() + path.len() > GIT_URL_BYTES_MAX {
            return Err(GitAddressError::TooLong);
        }
        if authority.contains('@') {
            return Err(GitAddressError::User);
        }
        if path.contains(['?', '#']) {
            return Err(GitAddressError::Query);
        }
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, parse_port(port).ok_or(GitAddressError::Port)?),
            None => (authority, HTTPS_PORT),
        };
        let host = HostName::parse(host).map_err(|_| GitAddressError::Host)?;
        let segments = if matches!(path, "" | "/") {
            vec![]
        } else {
            let segments = path.strip_prefix('/').ok_or(GitAddressError::Path)?;
            let segments = segments.strip_suffix('/').unwrap_or(segments);
            segments.split('/').map(segment).collect::<Result<_, _>>()?
        };
        Ok(Self { host, port, segments })
    }

    /// Reads the URL of a repository over https.
    ///
    /// # Errors
    /// By the first thing that is wrong.
    pub fn parse_url(url: &str) -> Result<Self, GitAddressError> {
        let (authority, path) = split_path(url.strip_prefix("https://").ok_or(GitAddressError::Scheme)?);
        Self::parse(authority, path)
    }

    pub fn host(&self) -> &HostName {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host, and the port unless it is that of https.
    pub fn authority(&self) -> String {
        if self.port == HTTPS_PORT { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }

    /// The path, with a slash before each segment.
    pub fn path(&self) -> String {
        self.segments.iter().flat_map(|segment| ["/", segment]).collect()
    }

    /// The repository with `.git` at the end of its path, as servers of Git LFS expect it.
    pub fn with_repository_ending(mut self) -> Self {
        if let Some(last) = self.segments.last_mut().filter(|last| !last.ends_with(REPOSITORY_ENDING)) {
            last.push_str(REPOSITORY_ENDING);
        }
        self
    }
}

/// As a URL.
impl fmt::Display for GitAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}{}", self.authority(), self.path())
    }
}

impl GitPrefix {
    /// Reads a prefix: `https://github.com/acme/`.
    ///
    /// # Errors
    /// By the first thing that is wrong.
    pub fn parse(text: &str) -> Result<Self, GitAddressError> {
        let address = GitAddress::parse_url(text)?;
        let is_directory = address.segments.is_empty() || text.ends_with('/');
        Ok(Self { address, is_directory })
    }

    /// Whether both mean the same place.
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.address == other.address
    }

    /// Whether an address is below it. Only whole segments count; a repository may be written with `.git` at its end.
    pub fn covers(&self, address: &GitAddress) -> bool {
        let (own, other) = (&self.address, address);
        let count = own.segments.len();
        if own.host != other.host || own.port != other.port || other.segments.len() < count {
            return false;
        }
        if self.is_directory {
            return other.segments.len() > count && other.segments.starts_with(&own.segments);
        }
        let is_repository =
            |(last, of): (&String, &String)| last == of || last.strip_suffix(REPOSITORY_ENDING) == Some(of);
        let Some(above) = count.checked_sub(1) else { return false };
        other.segments[..above] == own.segments[..above]
            && is_repository((&other.segments[above], &own.segments[above]))
    }

    /// The spellings of a URL below it that git may meet.
    fn spellings(&self) -> [String; 3] {
        let (host, path) = (&self.address.host, self.path());
        let below = path.strip_prefix('/').unwrap_or(&path);
        [self.to_string(), format!("ssh://{SSH_USER}{host}{path}"), format!("{SSH_USER}{host}:{below}")]
    }

    fn path(&self) -> String {
        self.address.path() + if self.is_directory { "/" } else { "" }
    }
}

/// As a URL.
impl fmt::Display for GitPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}{}", self.address.authority(), self.path())
    }
}

/// The longest prefix that covers an address.
pub fn find_longest<'a>(
    prefixes: impl IntoIterator<Item = &'a GitPrefix>,
    address: &GitAddress,
) -> Option<&'a GitPrefix> {
    let covering = prefixes.into_iter().filter(|prefix| prefix.covers(address));
    covering.max_by_key(|prefix| prefix.address.segments.len())
}

/// The address that the URL of a repository has below one of the prefixes. A URL for ssh as the user `git` means the same repository over https.
pub fn find_address<'a>(prefixes: impl IntoIterator<Item = &'a GitPrefix>, url: &str) -> Option<GitAddress> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = split_path(rest);
    match scheme {
        "https" => {
            let address = GitAddress::parse_url(url).ok()?;
            find_longest(prefixes, &address).map(|_| address)
        }
        "ssh" => {
            let authority = authority.strip_prefix(SSH_USER)?;
            let host = match authority.split_once(':') {
                Some((host, port)) => (port == SSH_PORT).then_some(host)?,
                None => authority,
            };
            let address = GitAddress::parse(host, path).ok()?;
            let at_port = |prefix: &GitPrefix| GitAddress { port: prefix.address.port, ..address.clone() };
            prefixes
                .into_iter()
                .map(|prefix| (prefix, at_port(prefix)))
                .find(|(prefix, address)| prefix.covers(address))
                .map(|(_, address)| address)
        }
        _ => None,
    }
}

/// The configuration that leads git to the door for everything below the prefixes. Remotes keep their URLs.
pub fn client_configuration<'a>(prefixes: impl IntoIterator<Item = &'a GitPrefix>) -> String {
    let (mut text, mut written) = (String::new(), BTreeSet::new());
    for prefix in prefixes {
        // Nothing in them needs an escape: every other character is encoded.
        let _ = writeln!(text, "[url \"{GIT_DOOR}{}{}\"]", prefix.address.authority(), prefix.path());
        for spelling in prefix.spellings() {
            // Two ports of one host have the same spelling for ssh.
            if written.insert(spelling.clone()) {
                let _ = writeln!(text, "\tinsteadOf = {spelling}");
            }
        }
    }
    text
}

/// The host and the port, and the path with its slash.
fn split_path(rest: &str) -> (&str, &str) {
    rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at))
}

fn parse_port(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

/// A segment in its one spelling. A percent sign inside would be decoded once more somewhere else.
fn segment(text: &str) -> Result<String, GitAddressError> {
    let bytes = percent_decode(text).ok_or(GitAddressError::Path)?;
    let is_fine = |byte: &u8| !byte.is_ascii_control() && !b"/\\%".contains(byte);
    if bytes.is_empty() || bytes == b"." || bytes == b".." || !bytes.iter().all(is_fine) {
        return Err(GitAddressError::Path);
    }
    Ok(percent_encode(&bytes, &PLAIN).to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> GitPrefix {
        GitPrefix::parse(text).unwrap()
    }

    #[test]
    fn a_prefix_has_one_spelling() {
        for (text, want) in [
            ("https://GitHub.com/acme/", "https://github.com/acme/"),
            ("https://github.com:443/acme", "https://github.com/acme"),
            ("https://git.acme.dev:8443", "https://git.acme.dev:8443/"),
            ("https://github.com./a%63me/My%20Repo", "https://github.com/acme/My%20Repo"),
            ("https://github.com/~ann/a+b", "https://github.com/~ann/a%2Bb"),
        ] {
            assert_eq!(prefix(text).to_string(), want);
        }
        for (text, error) in [
            ("http://github.com/", GitAddressError::Scheme),
            ("github.com/acme", GitAddressError::Scheme),
            ("https://ann:pass@github.com/", GitAddressError::User),
            ("https://ann@github.com/", GitAddressError::User),
            ("https://127.0.0.1/", GitAddressError::Host),
            ("https://localhost/", GitAddressError::Host),
            ("https:///acme", GitAddressError::Host),
            ("https://*.acme.dev/", GitAddressError::Host),
            ("https://github.com:0/", GitAddressError::Port),
            ("https://github.com:x/", GitAddressError::Port),
            ("https://github.com:1:2/", GitAddressError::Port),
            ("https://github.com/acme?x", GitAddressError::Query),
            ("https://github.com?x", GitAddressError::Query),
            ("https://github.com/acme#x", GitAddressError::Query),
            ("https://github.com//acme", GitAddressError::Path),
            ("https://github.com/acme//", GitAddressError::Path),
            ("https://github.com/a/../b", GitAddressError::Path),
            ("https://github.com/a/./b", GitAddressError::Path),
            ("https://github.com/a%2fb", GitAddressError::Path),
            ("https://github.com/%2e%2E/b", GitAddressError::Path),
            ("https://github.com/a%5Cb", GitAddressError::Path),
            ("https://github.com/a\\b", GitAddressError::Path),
            ("https://github.com/a%252fb", GitAddressError::Path),
            ("https://github.com/a%00", GitAddressError::Path),
            ("https://github.com/a\nb", GitAddressError::Path),
            ("https://github.com/a%", GitAddressError::Path),
        ] {
            assert_eq!(GitPrefix::parse(text), Err(error), "{text}");
        }
        let long = format!("https://github.com/{}", "a".repeat(GIT_URL_BYTES_MAX));
        assert_eq!(GitPrefix::parse(&long), Err(GitAddressError::TooLong));
    }

    #[test]
    fn a_prefix_covers_whole_segments_and_the_longest_wins() {
        let address = |url: &str| {
            let (authority, path) = split_path(url);
            GitAddress::parse(authority, path).unwrap()
        };
        let (directory, repository) = (prefix("https://h.org/acme/"), prefix("https://h.org/acme/app"));
        for (url, in_directory, in_repository) in [
            ("h.org/acme/app", true, true),
            ("h.org/acme/app.git/info/refs", true, true),
            ("h.org/acme/app/", true, true),
            ("h.org/acme/app2", true, false),
            ("h.org/acme/app.git.git", true, false),
            ("h.org/acme", false, false),
            ("h.org/acme-evil/app", false, false),
            ("h.org/acme.git/app", false, false),
            ("h.org/Acme/app", false, false),
            ("h.org:8443/acme/app", false, false),
            ("g.org/acme/app", false, false),
            ("h.org", false, false),
        ] {
            let covered = (directory.covers(&address(url)), repository.covers(&address(url)));
            assert_eq!(covered, (in_directory, in_repository), "{url}");
        }
        let all = [repository.clone(), directory.clone(), prefix("https://h.org")];
        let longest = |url| find_longest(&all, &address(url)).map(ToString::to_string);
        assert_eq!(longest("h.org/acme/app").as_deref(), Some("https://h.org/acme/app"));
        assert_eq!(longest("h.org/acme/x").as_deref(), Some("https://h.org/acme/"));
        assert_eq!(longest("h.org/x").as_deref(), Some("https://h.org/"));
        assert_eq!(longest("g.org/x"), None);
    }

    #[test]
    fn a_server_of_git_lfs_has_the_path_with_its_ending() {
        for (authority, path) in [("h.org", "/a/b"), ("h.org:443", "/a/b.git"), ("h.org", "/a/b/")] {
            let address = GitAddress::parse(authority, path).unwrap().with_repository_ending();
            assert_eq!(format!("{}{}", address.authority(), address.path()), "h.org/a/b.git");
        }
    }

    #[test]
    fn urls_for_ssh_mean_the_repository_behind_https() {
        let all = [prefix("https://h.org/acme/"), prefix("https://g.org:8443/")];
        let found = |url| find_address(&all, url).map(|address| address.to_string());
        for url in [
            "https://h.org/acme/app.git",
            "https://H.org:443/acme/app.git/",
            "ssh://git@h.org/acme/app.git",
            "ssh://git@h.org:22/acme/app.git",
        ] {
            assert_eq!(found(url).as_deref(), Some("https://h.org/acme/app.git"), "{url}");
        }
        assert_eq!(found("ssh://git@g.org/x").as_deref(), Some("https://g.org:8443/x"));
        for url in [
            "ssh://h.org/acme/app",
            "ssh://ann@h.org/acme/app",
            "ssh://git@h.org:2222/acme/app",
            "ssh://git@h.org/other/app",
            "ssh://git@h.org/acme/../other/app",
            "https://git@h.org/acme/app",
            "http://h.org/acme/app",
            "h.org/acme/app",
        ] {
            assert_eq!(found(url), None, "{url}");
        }
    }

    #[test]
    fn git_is_led_to_the_door_for_every_spelling() {
        let all = [prefix("https://h.org/a%22b/"), prefix("https://h.org"), prefix("https://h.org:8443")];
        let want = "[url \"http://127.0.0.1:3129/h.org/a%22b/\"]\n\tinsteadOf = https://h.org/a%22b/\n\tinsteadOf = ssh://git@h.org/a%22b/\n\
                    \tinsteadOf = git@h.org:a%22b/\n[url \"http://127.0.0.1:3129/h.org/\"]\n\tinsteadOf = https://h.org/\n\
                    \tinsteadOf = ssh://git@h.org/\n\tinsteadOf = git@h.org:\n[url \"http://127.0.0.1:3129/h.org:8443/\"]\n\
                    \tinsteadOf = https://h.org:8443/\n";
        assert_eq!(client_configuration(&all), want);
    }

    proptest! {
        #[test]
        fn what_is_read_is_read_again_as_the_same(path in "[ -~]{0,40}") {
            if let Ok(address) = GitAddress::parse("h.org", &path) {
                prop_assert_eq!(GitAddress::parse("h.org", &address.path()), Ok(address.clone()));
                let path = address.path() + "/";
                prop_assert!(!["//", "/../", "/./"].iter().any(|part| path.contains(part)), "{}", address);
                prop_assert!(address.path().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/%-._~".contains(&byte)));
            }
        }
    }
}
