//! What a workspace may start from, and which sources are refused.

use crate::{
    config::{Config, GitScheme},
    error::Error,
};
use chassis::network::{is_public, proxy_address::ProxyAddress};
use domain::{
    egress::{
        git::{GIT_URL_BYTES_MAX, GitAddress, GitAddressError, GitPrefix, find_address},
        host::HostName,
    },
    ids::SessionId,
};
use rpc::v1::ErrorCode;
use std::{
    net::{IpAddr, SocketAddr},
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
    Bundle(Upload),
    /// A repository of this machine.
    Directory(PathBuf),
    /// A server that the broker asks, with a credential.
    Door {
        /// As the caller gave it.
        url: String,
        address: GitAddress,
    },
    Remote {
        /// As the caller gave it.
        url: String,
        /// How a clone reaches it.
        route: Route,
    },
}

/// How a clone reaches a server. The service has checked the addresses in it, and the clone uses no others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Tls(Tunnel),
    /// With ssh at an address: options for ssh.
    Ssh(String),
}

/// The way to a server with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// The server as git asks for it: `host:port`.
    pub target: String,
    /// Where the service connects to.
    pub end: TunnelEnd,
}

/// The end of a tunnel on the side of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelEnd {
    /// One of the addresses of the server.
    Server(Vec<SocketAddr>),
    /// The operator's proxy, which resolves the name.
    Proxy(ProxyAddress),
}

impl Source {
    /// Whether the files come from a server.
    pub fn has_server(&self) -> bool {
        match self {
            Self::Door { .. } | Self::Remote { .. } => true,
            Self::Bundle(_) | Self::Directory(_) => false,
        }
    }

    /// The proxy on the way to its server, if there is one.
    pub fn proxy(&self) -> Option<&ProxyAddress> {
        match self {
            Self::Remote { route: Route::Tls(Tunnel { end: TunnelEnd::Proxy(proxy), .. }), .. } => {
                Some(proxy)
            }
            Self::Remote { route: Route::Tls(_) | Route::Ssh(_), .. }
            | Self::Bundle(_)
            | Self::Directory(_)
            | Self::Door { .. } => None,
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
            Error::refused(ErrorCode::ArgumentInvalid, format!("the URL for Git LFS cannot be one: {error}"))
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
    if url.len() > GIT_URL_BYTES_MAX {
        return Err(not_allowed("it is too long"));
    }
    if url.starts_with('-') || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(not_allowed("it contains white space or begins with a dash"));
    }
    if let Some(address) = find_address(prefixes, url) {
        return Ok(Source::Door { url: url.to_owned(), address });
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(not_allowed("write it as https://host/path"));
    };
    match scheme {
        "file" => directory(rest, config),
        "https" if config.git_schemes.contains(&GitScheme::Https) => {
            remote(url, rest, GitScheme::Https, config).await
        }
        "ssh" if config.git_schemes.contains(&GitScheme::Ssh) => {
            remote(url, rest, GitScheme::Ssh, config).await
        }
        _ => Err(not_allowed("its scheme is not enabled; see FLOTILLA_SANDBOX_GIT_SCHEMES")),
    }
}

fn directory(path: &str, config: &Config) -> Result<Source, Error> {
    let refused = || {
        let text = "cloning from this directory is not allowed; see FLOTILLA_SANDBOX_FILE_ROOTS";
        Error::refused(ErrorCode::UrlNotAllowed, text)
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
            Err(Error::refused(ErrorCode::RepositoryNotFound, format!("no repository at {}", path.display())))
        }
        Err(_) => Err(refused()),
    }
}

fn is_plainly_below(path: &Path, root: &Path) -> bool {
    path.starts_with(root) && !path.components().any(|part| part == std::path::Component::ParentDir)
}

async fn remote(url: &str, rest: &str, scheme: GitScheme, config: &Config) -> Result<Source, Error> {
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.rsplit_once('@') {
        Some((user, host)) if scheme == GitScheme::Ssh && is_name(user) => host,
        Some(_) => return Err(not_allowed("it contains credentials, which a sandbox never gets")),
        None => authority,
    };
    let (host, port) = match host.split_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| not_allowed("its port is not a number"))?),
        None if scheme == GitScheme::Https => (host, HTTPS_PORT),
        None => (host, SSH_PORT),
    };
    if !is_name(host) {
        return Err(not_allowed("its host is not a valid name"));
    }
    let route = match scheme {
        GitScheme::Https => {
            let end = match find_proxy(host, port, config)? {
                Some(proxy) => TunnelEnd::Proxy(proxy),
                None => {
                    let addresses = find_addresses(host, port, config).await?.into_iter();
                    TunnelEnd::Server(addresses.map(|address| SocketAddr::new(address, port)).collect())
                }
            };
            Route::Tls(Tunnel { target: format!("{host}:{port}"), end })
        }
        GitScheme::Ssh => {
            let addresses = find_addresses(host, port, config).await?;
            let missing = || unresolved(host, std::io::ErrorKind::NotFound.into());
            let address = addresses.first().ok_or_else(missing)?;
            // The name stays that of the host key.
            Route::Ssh(format!("-oHostName={address} -oHostKeyAlias={host}"))
        }
    };
    Ok(Source::Remote { url: url.to_owned(), route })
}

/// The proxy on the way to a host, if there is one. It resolves the name, so it gets no name that it could take for an address.
fn find_proxy(host: &str, port: u16, config: &Config) -> Result<Option<ProxyAddress>, Error> {
    let Some(proxy) = &config.git_proxy else { return Ok(None) };
    let is_excepted = config.git_proxy_except.iter().any(|exception| exception.covers(host));
    if is_excepted || find_fixed(host, port, config).is_some() {
        return Ok(None);
    }
    match host.parse::<IpAddr>() {
        Ok(address) => check_addresses(&[address], config)?,
        Err(_) if HostName::parse(host).is_err() => {
            let why = "its host is not a name of the internet, so the proxy does not look it up; see FLOTILLA_SANDBOX_GIT_PROXY_EXCEPT";
            return Err(not_allowed(why));
        }
        Err(_) => {}
    }
    Ok(Some(proxy.clone()))
}

/// The addresses of a host that a clone may use.
async fn find_addresses(host: &str, port: u16, config: &Config) -> Result<Vec<IpAddr>, Error> {
    if let Some(address) = find_fixed(host, port, config) {
        return Ok(vec![address]);
    }
    let found = look_up(host, port).await?;
    check_addresses(&found, config)?;
    Ok(found)
}

fn check_addresses(addresses: &[IpAddr], config: &Config) -> Result<(), Error> {
    if config.git_private_networks || addresses.iter().all(|address| is_public(*address)) {
        return Ok(());
    }
    Err(not_allowed("its host is in a private network; see FLOTILLA_SANDBOX_GIT_PRIVATE_NETWORKS"))
}

fn not_allowed(why: &str) -> Error {
    Error::refused(ErrorCode::UrlNotAllowed, format!("this URL cannot be cloned: {why}"))
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
    Error::refused(ErrorCode::RepositoryUnreachable, format!("cannot resolve the host {host}: {error}"))
}

/// Whether a host or user name is plain, so that no program takes it for an option or a pattern.
fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    first
        && text.len() <= 253
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
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
        ErrorCode::RevisionNotFound,
        format!("{revision:?} is not a valid branch, tag or commit name"),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use clap::Parser as _;

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

    /// The route of a clone.
    async fn route(url: &str, config: &Config) -> Route {
        match parse(url, &[], config).await.unwrap() {
            Source::Remote { route, .. } => route,
            other => panic!("{other:?}"),
        }
    }

    fn direct(target: &str, address: &str) -> Route {
        let end = TunnelEnd::Server(vec![address.parse().unwrap()]);
        Route::Tls(Tunnel { target: target.to_owned(), end })
    }

    /// Why the service clones nothing from this URL.
    async fn refusal(url: &str, config: &Config) -> String {
        let error = parse(url, &[], config).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::UrlNotAllowed);
        error.to_string()
    }

    #[tokio::test]
    async fn a_host_that_the_operator_gives_an_address_needs_no_server_of_names() {
        let hosts = ["--git-hosts", "git.acme.dev=10.1.2.3:443,git.acme.dev=10.1.2.4:8443"];
        for further in [vec![], vec!["--git-proxy", "http://proxy.acme.dev:3128"]] {
            let config = config(&[&hosts[..], &further].concat());
            for (url, want) in [
                ("https://Git.acme.dev/r", direct("Git.acme.dev:443", "10.1.2.3:443")),
                ("https://git.acme.dev:8443/r", direct("git.acme.dev:8443", "10.1.2.4:8443")),
            ] {
                assert_eq!(route(url, &config).await, want);
            }
            assert_eq!(find_fixed("git.acme.dev", 22, &config), None, "another port");
            let refused = refusal("https://10.1.2.3/r", &config).await;
            assert!(refused.contains("FLOTILLA_SANDBOX_GIT_PRIVATE_NETWORKS"), "only by its name: {refused}");
        }
    }

    #[tokio::test]
    async fn the_address_that_was_checked_is_the_one_that_is_used() {
        let config = config(&["--git-schemes", "https,ssh", "--git-private-networks"]);
        let https = route("https://127.0.0.1:99/r", &config).await;
        assert_eq!(https, direct("127.0.0.1:99", "127.0.0.1:99"));
        let Route::Ssh(options) = route("ssh://git@localhost:2222/r", &config).await else { panic!() };
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

    #[tokio::test]
    async fn a_proxy_gets_names_of_the_internet_and_no_private_address() {
        let proxied = ["--git-schemes", "https,ssh", "--git-proxy", "http://10.1.2.3:3128"];
        let proxied = [&proxied[..], &["--git-proxy-except", "127.0.0.0/8,.inside.acme.dev"]].concat();
        let proxy = |target: &str| {
            let end = TunnelEnd::Proxy(ProxyAddress { host: "10.1.2.3".to_owned(), port: 3128 });
            Route::Tls(Tunnel { target: target.to_owned(), end })
        };
        let closed = config(&proxied);
        for (url, target) in [
            ("https://Git.acme.dev/r", "Git.acme.dev:443"),
            ("https://inside.acme.dev:8443/r", "inside.acme.dev:8443"),
            ("https://1.1.1.1/r", "1.1.1.1:443"),
        ] {
            assert_eq!(route(url, &closed).await, proxy(target), "{url}");
        }
        for (url, setting) in [
            ("https://10.1.2.3/r", "FLOTILLA_SANDBOX_GIT_PRIVATE_NETWORKS"),
            ("https://169.254.169.254/r", "FLOTILLA_SANDBOX_GIT_PRIVATE_NETWORKS"),
            // The addresses of exceptions are checked as without a proxy.
            ("https://127.0.0.1/r", "FLOTILLA_SANDBOX_GIT_PRIVATE_NETWORKS"),
            ("https://localhost/r", "FLOTILLA_SANDBOX_GIT_PROXY_EXCEPT"),
            ("https://git/r", "FLOTILLA_SANDBOX_GIT_PROXY_EXCEPT"),
            ("https://10.1.2.3./r", "FLOTILLA_SANDBOX_GIT_PROXY_EXCEPT"),
            ("https://127.1/r", "FLOTILLA_SANDBOX_GIT_PROXY_EXCEPT"),
            ("https://2130706433/r", "FLOTILLA_SANDBOX_GIT_PROXY_EXCEPT"),
            ("https://0x7f.1/r", "FLOTILLA_SANDBOX_GIT_PROXY_EXCEPT"),
        ] {
            let refused = refusal(url, &closed).await;
            assert!(refused.contains(setting), "{url}: {refused}");
        }
        let opened = config(&[&proxied[..], &["--git-private-networks"]].concat());
        assert_eq!(route("https://10.1.2.4/r", &opened).await, proxy("10.1.2.4:443"));
        let excepted = route("https://127.0.0.1/r", &opened).await;
        assert_eq!(excepted, direct("127.0.0.1:443", "127.0.0.1:443"));
        let ssh = route("ssh://git@127.0.0.2/r", &opened).await;
        assert_eq!(ssh, Route::Ssh("-oHostName=127.0.0.2 -oHostKeyAlias=127.0.0.2".to_owned()));
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
