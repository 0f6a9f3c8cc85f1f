//! The settings of the broker.

use crate::{
    images::registry::hosts::{Hosts, PlaintextHost},
    outside::proxy::UpstreamProxy,
    secrets::{
        deployment_key::DeploymentKey,
        key_file::{self, KeyFile},
        keyring::Keyring,
        transit::{TransitKey, TransitSettings},
    },
};
use anyhow::{Context as _, bail, ensure};
use chassis::{
    backends::transport::{SharedServer, TransportConfig},
    grpc::{Plaintext, internal_port::InternalPort, tokens::Tokens},
    network::{Network, proxy_exception::ProxyException},
    secret::Secret,
};
use domain::egress::host::FixedHost;
use reqwest::Certificate;
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Files with further keys. The broker does not start with more.
const FURTHER_KEY_FILES_MAX: usize = 8;
/// Bytes of the file with the URL of the upstream proxy. The broker does not start with more.
const UPSTREAM_PROXY_BYTES_MAX: u64 = 4_096;

/// A service that keeps the key of the deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyService {
    /// The transit engine of HashiCorp Vault or OpenBao.
    Vault,
}

/// The settings of the broker.
#[derive(Debug, Clone, clap::Args)]
pub struct Config {
    /// Address of the gRPC port; port 0 takes a free one. Only gateways and workers may reach it. An address that is not loopback needs TLS or
    /// `plaintext`.
    #[arg(long, env = "FLOTILLA_BROKER_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Postgres, as the role `flotilla_broker`, which reaches only the broker's tables.
    #[arg(long, env = "FLOTILLA_BROKER_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Secret<String>,
    /// Where its connections to Postgres may travel without TLS.
    #[command(flatten)]
    pub transport: TransportConfig,
    /// Postgres connections of this process. Further calls wait for five seconds. Beyond it: `store_unavailable`.
    #[arg(long, env = "FLOTILLA_BROKER_CONNECTIONS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub connections: u32,
    /// Which versions of the database it works with.
    #[command(flatten)]
    pub schema: chassis::backends::schema::SchemaConfig,
    /// The file with the key of this deployment; made if missing and if it is the only key, for its owner alone. It seals secrets unless a key service
    /// does. Keep a copy apart from those of Postgres: without it every secret that it sealed is lost. Needed without `kms`.
    #[arg(long, env = "FLOTILLA_BROKER_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Files with further keys, which only open secrets; separated by commas. Secrets of older keys are sealed again in the background.
    #[arg(long, env = "FLOTILLA_BROKER_FURTHER_KEY_FILES", value_delimiter = ',', value_name = "FILE")]
    pub further_key_files: Vec<PathBuf>,
    /// The key service whose key seals secrets in place of the key file. The file still opens what it sealed. Default: none.
    #[arg(long, env = "FLOTILLA_BROKER_KMS", value_enum, value_name = "SERVICE")]
    pub kms: Option<KeyService>,
    /// The address of the key service, such as `https://vault.acme.dev:8200`; http only on this machine. Without `kms`, its key only opens secrets.
    #[arg(long, env = "FLOTILLA_BROKER_KMS_URL", value_name = "URL")]
    pub kms_url: Option<String>,
    /// The name of the key in the key service.
    #[arg(long, env = "FLOTILLA_BROKER_KMS_KEY", value_name = "NAME")]
    pub kms_key: Option<String>,
    /// The file with the token for the key service, for its owner alone. The broker reads it for each call, so an agent may renew it.
    #[arg(long, env = "FLOTILLA_BROKER_KMS_TOKEN_FILE", value_name = "FILE")]
    pub kms_token_file: Option<PathBuf>,
    /// PEM file with certificates of authorities that the broker trusts for the key service, in addition to those of this machine. The service reads
    /// it when it starts.
    #[arg(long, env = "FLOTILLA_BROKER_KMS_CA", value_name = "FILE")]
    pub kms_ca: Option<PathBuf>,
    /// The directory of the doors through which the sessions of this machine reach the network. The sandbox service of the machine has the same one
    /// as `FLOTILLA_SANDBOX_EGRESS`. A second broker of the same directory does not start. Without it sessions have no network, models read no pages of the web, and setups and installs get no secrets.
    #[arg(long, env = "FLOTILLA_BROKER_EGRESS", value_name = "DIRECTORY")]
    pub egress: Option<PathBuf>,
    /// The directory in which commits that are pushed stay until they are checked. It is this broker's alone, and is emptied when the broker starts: a second broker of
    /// the same directory does not start. The machine needs git 2.31 and Landlock (Linux 5.13). Without it no session can be pushed.
    #[arg(long, env = "FLOTILLA_BROKER_PUSH", value_name = "DIRECTORY")]
    pub push: Option<PathBuf>,
    /// Lets the broker start on a machine that cannot run git behind its walls. It then refuses pushes and says why. Default: it does not start.
    #[arg(long, env = "FLOTILLA_BROKER_PUSH_OPTIONAL")]
    pub push_optional: bool,
    /// Networks outside the public internet, such as 10.1.2.0/24; separated by commas. Sessions reach the hosts in them that their lists have, and
    /// registries of images with TLS may stand in them. Tenants name the hosts, so everything in these networks that speaks TLS can be asked. Default: none.
    #[arg(long, env = "FLOTILLA_BROKER_NETWORKS", value_delimiter = ',', value_name = "NETWORK")]
    pub networks: Vec<Network>,
    /// Addresses of hosts that no server of names knows: `registry.acme.dev=10.1.2.3:8443`. The port replaces that of the request. May be repeated.
    #[arg(long, env = "FLOTILLA_BROKER_HOSTS", value_delimiter = ',', value_name = "HOST=ADDRESS")]
    pub hosts: Vec<FixedHost>,
    /// The proxy of your network through which the broker reaches hosts outside: `http://proxy.acme.dev:3128`, or with a login
    /// `http://user:password@proxy.acme.dev:3128`. The proxy resolves their names, so it must itself refuse hosts inside your network. It is not used for
    /// the hosts of `hosts` and the key service. Default: the broker connects directly.
    #[arg(long, env = "FLOTILLA_BROKER_UPSTREAM_PROXY", hide_env_values = true, value_name = "URL")]
    pub upstream_proxy: Option<Secret<String>>,
    /// The file with this URL, for its owner alone, in place of `upstream_proxy`: a password is then in no environment. The service reads it when it
    /// starts.
    #[arg(long, env = "FLOTILLA_BROKER_UPSTREAM_PROXY_FILE", value_name = "FILE")]
    pub upstream_proxy_file: Option<PathBuf>,
    /// Hosts that the broker reaches without the upstream proxy, separated by commas: a host (`git.acme.dev`), all hosts below a name (`.acme.dev`), or
    /// a network for hosts that are addresses (`10.0.0.0/8`). The broker resolves and checks them as without a proxy. Default: none.
    #[arg(long, env = "FLOTILLA_BROKER_UPSTREAM_PROXY_EXCEPT", value_delimiter = ',', value_name = "HOST")]
    pub upstream_proxy_except: Vec<ProxyException>,
    /// PEM file with the certificate of the port, and those between it and the CA. New connections get a file that replaces it.
    #[arg(long, env = "FLOTILLA_BROKER_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of that certificate.
    #[arg(long, env = "FLOTILLA_BROKER_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Where calls may travel without TLS of this port: `network` says that a mesh or a private link encrypts them. Default: only on this
    /// machine.
    #[arg(long, env = "FLOTILLA_BROKER_PLAINTEXT", value_enum, value_name = "WHERE")]
    pub plaintext: Option<Plaintext>,
    /// Token that any caller may present as `authorization: Bearer …`, for every call; at least 16 bytes. Prefer tokens by name.
    #[arg(long, env = "FLOTILLA_BROKER_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<Secret<String>>,
    /// Tokens of callers by name, separated by commas: `gateway:…,worker:…`. Each is only for the calls of its caller. A name may come twice while one
    /// token replaces the other.
    #[arg(
        long,
        env = "FLOTILLA_BROKER_TOKENS",
        value_delimiter = ',',
        hide_env_values = true,
        value_name = "NAME:TOKEN"
    )]
    pub tokens: Vec<Secret<String>>,
    /// Registries that speak http without TLS, such as `registry.local:5000`; separated by commas. They may be in private networks. An attacker
    /// who can change what they send can read the credentials for them. Default: none.
    #[arg(long, env = "FLOTILLA_BROKER_REGISTRY_PLAINTEXT", value_delimiter = ',', value_name = "HOST:PORT")]
    pub registry_plaintext: Vec<PlaintextHost>,
    /// PEM file with certificates of authorities that the broker trusts for registries, in addition to those of this machine. The service reads
    /// it when it starts.
    #[arg(long, env = "FLOTILLA_BROKER_REGISTRY_CA", value_name = "FILE")]
    pub registry_ca: Option<PathBuf>,
    /// PEM file with certificates of authorities that the broker trusts for servers of git and for the forge, in addition to those of this machine. The service reads
    /// it when it starts.
    #[arg(long, env = "FLOTILLA_BROKER_GIT_CA", value_name = "FILE")]
    pub git_ca: Option<PathBuf>,
    /// Milliseconds between two writes of one installation of the App at the forge. GitHub takes faster ones for abuse.
    #[arg(long, env = "FLOTILLA_BROKER_FORGE_WRITE_GAP_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub forge_write_gap_ms: u64,
}

impl Config {
    /// The port.
    pub fn port(&self) -> InternalPort {
        InternalPort {
            service: "FLOTILLA_BROKER",
            listen: self.listen,
            tls_certificate: self.tls_certificate.clone(),
            tls_key: self.tls_key.clone(),
            plaintext: self.plaintext,
            token: self.token.clone(),
            tokens: self.tokens.clone(),
        }
    }

    /// The hosts that images may come from, and the proxy on the way to them.
    ///
    /// # Errors
    /// The file with the certificates cannot be used.
    pub fn registry_hosts(&self, upstream: Option<Arc<UpstreamProxy>>) -> anyhow::Result<Hosts> {
        let authorities = authorities(self.registry_ca.as_deref())?;
        let (plaintext, networks) = (self.registry_plaintext.clone(), self.networks.clone());
        Ok(Hosts { plaintext, networks, authorities, upstream })
    }

    /// The proxy through which the broker reaches hosts outside, if there is one.
    ///
    /// # Errors
    /// The URL is wrong, or its file cannot be used. The text names the setting, and not the URL.
    pub fn upstream_proxy(&self) -> anyhow::Result<Option<Arc<UpstreamProxy>>> {
        let (setting, url) = match (&self.upstream_proxy, &self.upstream_proxy_file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                bail!(
                    "set FLOTILLA_BROKER_UPSTREAM_PROXY_FILE or FLOTILLA_BROKER_UPSTREAM_PROXY, and not both"
                )
            }
            (Some(url), None) => ("use FLOTILLA_BROKER_UPSTREAM_PROXY", url.clone()),
            (None, Some(file)) => {
                let setting = "use FLOTILLA_BROKER_UPSTREAM_PROXY_FILE";
                (setting, secret_text(file, UPSTREAM_PROXY_BYTES_MAX).context(setting)?)
            }
        };
        let proxy = UpstreamProxy::parse(url.expose().trim(), self.upstream_proxy_except.clone());
        Ok(Some(Arc::new(proxy.context(setting)?)))
    }

    /// The authorities that are trusted for servers of git.
    ///
    /// # Errors
    /// The file with the certificates cannot be used.
    pub fn git_authorities(&self) -> anyhow::Result<Vec<Certificate>> {
        authorities(self.git_ca.as_deref())
    }

    /// The keys that seal and open secrets, the one that seals first.
    ///
    /// # Errors
    /// A file cannot be used, or the settings of the key service are wrong.
    pub fn keyring(&self) -> anyhow::Result<Keyring> {
        // With further keys or a key service, a file that is missing is a mistake: all brokers would seal with its new key, at once or on the way back
        // from the service.
        let is_first = self.further_key_files.is_empty() && self.kms_url.is_none();
        let open = if is_first { KeyFile::open_or_create } else { KeyFile::open };
        let own = self.key_file.as_deref().map(open);
        let further = self.further_key_files.iter().map(|file| KeyFile::open(file));
        let files = own.into_iter().chain(further).collect::<Result<Vec<_>, _>>()?;
        let mut keys: Vec<_> = files.into_iter().map(DeploymentKey::File).collect();
        if let Some(key) = self.transit_key()? {
            let at = if self.kms.is_some() { 0 } else { keys.len() };
            keys.insert(at, DeploymentKey::Transit(Box::new(key)));
        }
        let mut keys = keys.into_iter();
        Ok(Keyring::new(keys.next().context("there is no key")?, keys.collect()))
    }

    /// The files that no other process may read. One with a token may be missing, because an agent writes it.
    pub fn secret_files(&self) -> Vec<&Path> {
        let keys = self.key_file.iter().chain(&self.further_key_files).chain(&self.tls_key);
        keys.chain(&self.kms_token_file).chain(&self.upstream_proxy_file).map(PathBuf::as_path).collect()
    }

    fn transit_key(&self) -> anyhow::Result<Option<TransitKey>> {
        let (Some(url), Some(key), Some(token_file)) = (&self.kms_url, &self.kms_key, &self.kms_token_file)
        else {
            return Ok(None);
        };
        let authorities = authorities(self.kms_ca.as_deref()).context("use FLOTILLA_BROKER_KMS_CA")?;
        TransitKey::new(TransitSettings { url, key, token_file, authorities }).map(Some)
    }

    fn key_problems(&self) -> Vec<String> {
        let has = [self.kms_url.is_some(), self.kms_key.is_some(), self.kms_token_file.is_some()];
        let mut problems = vec![];
        if has.contains(&false) && (self.kms.is_some() || has.contains(&true)) {
            problems.push(
                "a key service needs FLOTILLA_BROKER_KMS_URL, FLOTILLA_BROKER_KMS_KEY and FLOTILLA_BROKER_KMS_TOKEN_FILE"
                    .to_owned(),
            );
        }
        if self.key_file.is_none() && self.kms.is_none() {
            problems.push("set FLOTILLA_BROKER_KEY_FILE, or FLOTILLA_BROKER_KMS".to_owned());
        }
        if self.further_key_files.len() > FURTHER_KEY_FILES_MAX {
            problems.push(format!(
                "FLOTILLA_BROKER_FURTHER_KEY_FILES has more than {FURTHER_KEY_FILES_MAX} files"
            ));
        }
        problems
    }

    /// Returns the tokens of callers, and every problem of the settings, one sentence each.
    pub fn check(&self) -> (Tokens, Vec<String>) {
        let (tokens, mut problems) = self.port().check();
        let database =
            (SharedServer::Postgres, "FLOTILLA_BROKER_DATABASE_URL", self.database_url.expose().as_str());
        problems.extend(self.transport.problems([database]));
        problems.extend(self.key_problems());
        problems.extend(self.upstream_proxy().err().map(|error| format!("{error:#}")));
        (tokens, problems)
    }
}

/// Reads a text that no other user may read.
fn secret_text(file: &Path, bytes_max: u64) -> anyhow::Result<Secret<String>> {
    let read = key_file::read_private(file, bytes_max);
    let read = read.with_context(|| format!("open {}", file.display()))?;
    let bytes = read.with_context(|| {
        format!("other users may read {}; run chmod 600, and consider its password as read", file.display())
    })?;
    ensure!(bytes.len() as u64 <= bytes_max, "{} has more than {bytes_max} bytes", file.display());
    let text = std::str::from_utf8(&bytes).with_context(|| format!("read {}", file.display()))?;
    Ok(Secret::new(text.to_owned()))
}

/// Reads the certificates in a file, if there is one.
fn authorities(file: Option<&Path>) -> anyhow::Result<Vec<Certificate>> {
    let Some(file) = file else { return Ok(vec![]) };
    let pem = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let read = Certificate::from_pem_bundle(&pem);
    let read = read.with_context(|| format!("read the certificates in {}", file.display()))?;
    ensure!(!read.is_empty(), "{} contains no certificate", file.display());
    Ok(read)
}
