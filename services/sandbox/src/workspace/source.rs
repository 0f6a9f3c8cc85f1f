//! What a workspace may start from, and which sources are refused.

use crate::{
    code::Code,
    config::{Config, GitScheme},
    error::Error,
};
use domain::{
    egress::{
        git::{GIT_URL_BYTES_MAX, GitAddress, GitAddressError, GitPrefix, find_address},
        host::HostName,
    },
    ids::SessionId,
};
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

const HTTPS_PORT: u16 = 443;
const SSH_PORT: u16 = 22;

/// The file of an upload. Dropping it removes the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Upload(PathBuf);

impl Upload {
    /// An upload that goes to the file `path`, which need not exist yet.
    pub fn to(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is on this machine.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // It may not have been made. What stays is removed at the next start of the service.
        drop(std::fs::remove_file(&self.0));
    }
}

/// The repository through whose server the door of a session reads objects of Git LFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LfsRepository {
    /// As the caller gave it.
    pub url: String,
    /// Where it is.
    pub address: GitAddress,
    /// Whether the files do not open without its objects. Otherwise the files came another way, and stay pointers where the server fails.
    pub is_required: bool,
}

/// Where the objects of Git LFS of a workspace come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LfsOrigins {
    /// The repository that has them; `None`: no door reads any.
    pub repository: Option<LfsRepository>,
    /// The session of the tenant whose files the workspace begins with; `None`: it does not begin with a copy.
    pub session: Option<SessionId>,
}

/// What a workspace starts from.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    /// An uploaded git bundle.
    Bundle(Upload),
    /// A repository of this machine.
    Directory(PathBuf),
    /// A server that the broker asks, with a credential.
    Door {
        /// As the caller gave it.
        url: String,
        /// Where it is.
        address: GitAddress,
    },
    /// A server.
    Remote {
        /// As the caller gave it.
        url: String,
        /// How to reach it.
        scheme: GitScheme,
        /// The addresses that were checked, so that they are those that are used: `host:port:address,…` for curl, options for ssh.
        resolve: String,
    },
}

impl Source {
    /// Whether the files come from a server.
    pub fn has_server(&self) -> bool {
        match self {
            Self::Door { .. } | Self::Remote { .. } => true,
            Self::Bundle(_) | Self::Directory(_) => false,
        }
    }

    /// The repository that has its objects of Git LFS: its own if it is behind the door, else the one that the caller names with `url`. `None`: no door reads
    /// any.
    ///
    /// # Errors
    /// `argument_invalid`: the URL is none of a repository.
    pub fn lfs_repository(&self, url: &str) -> Result<Option<LfsRepository>, Error> {
        if let Self::Door { url, address } = self {
            return Ok(Some(LfsRepository { url: url.clone(), address: address.clone(), is_required: true }));
        }
        if url.is_empty() {
            return Ok(None);
        }
        let invalid = |error: GitAddressError| {
            Error::refused(Code::ArgumentInvalid, format!("the URL for Git LFS cannot be one: {error}"))
        };
        let address = GitAddress::parse_url(url).map_err(invalid)?;
        Ok(Some(LfsRepository { url: url.to_owned(), address, is_required: false }))
    }
}

/// Checks a git URL. Below one of the prefixes it leads to the broker, which checks the address of the server.
///
/// # Errors
/// `url_not_allowed`; `repository_not_found` for a directory that is not there; `repository_unreachable` for a host
/// without an address.
pub async fn parse(url: &str, prefixes: &[GitPrefix], config: &Config) -> Result<Source, Error> {
    let refused =
        |why: &str| Error::refused(Code::UrlNotAllowed, format!("this URL cannot be cloned: {why}"));
    if url.len() > GIT_URL_BYTES_MAX {
        return Err(refused("it is too long"));
    }
    if url.starts_with('-') || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(refused("it contains white space or begins with a dash"));
    }
    if let Some(address) = find_address(prefixes, url) {
        return Ok(Source::Door { url: url.to_owned(), address });
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(refused("write it as https://host/path"));
    };
    match scheme {
        "file" => directory(rest, config),
        "https" if config.git_schemes.contains(&GitScheme::Https) => {
            remote(url, rest, GitScheme::Https, config).await
        }
        "ssh" if config.git_schemes.contains(&GitScheme::Ssh) => {
            remote(url, rest, GitScheme::Ssh, config).await
        }
        _ => Err(refused("its scheme is not enabled; see FLOTILLA_SANDBOX_GIT_SCHEMES")),
    }
}

fn directory(path: &str, config: &Config) -> Result<Source, Error> {
    let refused = || {
        let text = "cloning from this directory is not allowed; see FLOTILLA_SANDBOX_FILE_ROOTS";
        Error::refused(Code::UrlNotAllowed, text)
    };
    let path = Path::new(path);
    if !path.is_absolute() {
        return Err(refused());
    }
    let roots: Vec<PathBuf> = config.file_roots.iter().filter_map(|root| root.canonicalize().ok()).collect();
    match path.canonicalize() {
        Ok(real) if roots.iter().any(|root| real.starts_with(root)) => Ok(Source::Directory(real)),
        Ok(_) => Err(refused()),
        // The error must not reveal whether a path outside the roots exists.
        Err(_) if config.file_roots.iter().chain(&roots).any(|root| is_plainly_below(path, root)) => {
            Err(Error::refused(Code::RepositoryNotFound, format!("no repository at {}", path.display())))
        }
        Err(_) => Err(refused()),
    }
}

fn is_plainly_below(path: &Path, root: &Path) -> bool {
    path.starts_with(root) && !path.components().any(|part| part == std::path::Component::ParentDir)
}

async fn remote(url: &str, rest: &str, scheme: GitScheme, config: &Config) -> Result<Source, Error> {
    let refused =
        |why: &str| Error::refused(Code::UrlNotAllowed, format!("this URL cannot be cloned: {why}"));
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.rsplit_once('@') {
        Some((user, host)) if scheme == GitScheme::Ssh && is_name(user) => host,
        Some(_) => return Err(refused("it contains credentials, which a sandbox never gets")),
        None => authority,
    };
    let (host, port) = match host.split_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| refused("its port is not a number"))?),
        None if scheme == GitScheme::Https => (host, HTTPS_PORT),
        None => (host, SSH_PORT),
    };
    if !is_name(host) {
        return Err(refused("its host is not a valid name"));
    }
    let addresses = match find_fixed(host, port, config) {
        Some(address) => vec![address],
        None => {
            let found = look_up(host, port).await?;
            if !config.git_private_networks && !found.iter().all(|address| is_public(*address)) {
                let why = "its host is in a private network; see FLOTILLA_SANDBOX_GIT_PRIVATE_NETWORKS";
                return Err(refused(why));
            }
            found
        }
    };
    let resolve = match (scheme, addresses.first()) {
        // The name stays that of the host key.
        (GitScheme::Ssh, Some(address)) => format!("-oHostName={address} -oHostKeyAlias={host}"),
        (GitScheme::Ssh, None) => return Err(unresolved(host, std::io::ErrorKind::NotFound.into())),
        (GitScheme::Https, _) => {
            let addresses: Vec<String> = addresses.iter().map(show).collect();
            format!("{host}:{port}:{}", addresses.join(","))
        }
    };
    Ok(Source::Remote { url: url.to_owned(), scheme, resolve })
}

/// The address that the operator gives to a host with this port.
fn find_fixed(host: &str, port: u16, config: &Config) -> Option<IpAddr> {
    let host = HostName::parse(host).ok()?;
    let mut given = config.git_hosts.iter().filter(|fixed| fixed.host == host);
    given.find(|fixed| fixed.address.port() == port).map(|fixed| fixed.address.ip())
}

/// Asks the server of names.
async fn look_up(host: &str, port: u16) -> Result<Vec<IpAddr>, Error> {
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(|error| unresolved(host, error))?;
    Ok(addresses.map(|address| address.ip()).collect())
}

fn unresolved(host: &str, error: std::io::Error) -> Error {
    Error::refused(Code::RepositoryUnreachable, format!("cannot resolve the host {host}: {error}"))
}

/// Whether a host or user name is plain, so that no program takes it for an option or a pattern.
fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    first
        && text.len() <= 253
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

fn show(address: &IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Whether an address is on the public internet: not a private network, this machine, or a metadata server.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            let private = address.is_private() || address.is_loopback() || address.is_link_local();
            let shared = a == 0
                || a >= 224
                || (a == 100 && (64..128).contains(&b))
                || (a == 198 && (b == 18 || b == 19));
            let special = (a == 192 && b == 0 && (c == 0 || c == 2)) || address.is_documentation();
            !private && !shared && !special
        }
        IpAddr::V6(address) => {
            let [first, second, ..] = address.segments();
            let inner = match address.to_ipv4_mapped() {
                Some(inner) => Some(inner),
                // NAT64 carries an IPv4 address in its last four bytes.
                None if first == 0x64 && second == 0xff9b => {
                    let bits = address.to_bits() as u32;
                    Some(bits.into())
                }
                None => None,
            };
            match inner {
                Some(inner) => is_public(inner.into()),
                // Global unicast is 2000::/3; 2002::/16 wraps IPv4, 2001:db8::/32 is for documents.
                None => {
                    (first & 0xe000) == 0x2000 && first != 0x2002 && !(first == 0x2001 && second == 0xdb8)
                }
            }
        }
    }
}

/// Checks the name of a branch, tag or commit; empty is the default one.
///
/// # Errors
/// `revision_not_found`: no such name can exist.
pub fn check_revision(revision: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-+@#".contains(&byte) || byte >= 0x80;
    let fine = revision.len() <= domain::limits::NAME_BYTES_MAX
        && !revision.starts_with('-')
        && !revision.contains("..")
        && !revision.contains("@{")
        && revision.bytes().all(allowed);
    if fine {
        return Ok(());
    }
    Err(Error::refused(
        Code::RevisionNotFound,
        format!("{revision:?} is not a valid branch, tag or commit name"),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use clap::Parser as _;

    #[test]
    fn addresses_of_the_machine_and_its_networks_are_not_public() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in ["1.1.1.1", "140.82.121.4", "2606:4700::1111", "::ffff:1.1.1.1"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        config: Config,
    }

    fn config(settings: &[&str]) -> Config {
        let arguments = ["sandbox", "--token", "a token for the test", "--data-directory", "/nowhere"];
        let all = arguments.into_iter().chain(settings.iter().copied());
        Cli::try_parse_from(all).unwrap().config
    }

    /// The addresses that a clone uses.
    async fn resolved(url: &str, config: &Config) -> String {
        match parse(url, &[], config).await.unwrap() {
            Source::Remote { resolve, .. } => resolve,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_host_that_the_operator_gives_an_address_needs_no_server_of_names() {
        let config = config(&["--git-hosts", "git.acme.dev=10.1.2.3:443,git.acme.dev=10.1.2.4:8443"]);
        assert_eq!(resolved("https://Git.acme.dev/r", &config).await, "Git.acme.dev:443:10.1.2.3");
        assert_eq!(resolved("https://git.acme.dev:8443/r", &config).await, "git.acme.dev:8443:10.1.2.4");
        assert_eq!(find_fixed("git.acme.dev", 22, &config), None, "another port");
        let refused = parse("https://10.1.2.3/r", &[], &config).await.unwrap_err();
        assert_eq!(refused.code(), Code::UrlNotAllowed, "only by its name");
    }

    #[tokio::test]
    async fn the_address_that_was_checked_is_the_one_that_is_used() {
        let config = config(&["--git-schemes", "https,ssh", "--git-private-networks"]);
        assert_eq!(resolved("https://127.0.0.1:99/r", &config).await, "127.0.0.1:99:127.0.0.1");
        let options = resolved("ssh://git@localhost:2222/r", &config).await;
        let address = options.strip_prefix("-oHostName=").and_then(|rest| rest.split_once(' ')).unwrap();
        assert!(address.0.parse::<IpAddr>().unwrap().is_loopback(), "{options}");
        assert_eq!(address.1, "-oHostKeyAlias=localhost");
        // As ssh reads them: it connects to the address, and looks the host key up by the name.
        let ssh =
            std::process::Command::new("ssh").arg("-G").args(options.split(' ')).arg("localhost").output();
        let shown = String::from_utf8(ssh.unwrap().stdout).unwrap();
        for line in [format!("hostname {}", address.0), "hostkeyalias localhost".to_owned()] {
            assert!(shown.lines().any(|shown| shown == line), "{line} is not in {shown}");
        }
    }

    #[test]
    fn revisions_are_names() {
        for text in ["", "main", "feature/x-1", "v1.0.0", "0123456789abcdef", "fix#12"] {
            assert!(check_revision(text).is_ok(), "{text}");
        }
        for text in ["-x", "a b", "a..b", "HEAD~1", "x^{commit}", "a:b", "@{-1}", "a\nb"] {
            assert!(check_revision(text).is_err(), "{text}");
        }
    }
}
