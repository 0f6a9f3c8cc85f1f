//! The configuration of each service of a test stack: by the same arguments as in production.

use std::{
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU16, Ordering},
};
use testkit::database::Database;

/// The operator's key of every test stack.
pub const OPERATOR_KEY: &str = "operator-key-of-a-test";
/// The models of every test stack, the default first.
pub const MODELS: &str =
    "chat/demo,claude/demo,responses/demo,gemini/demo,chat/eyes,claude/eyes,responses/eyes,gemini/eyes";
/// The users for the sandboxes of one stack.
pub(crate) const SANDBOX_USERS: u32 = 1_000;
/// The token with which the gateways of every test stack call the broker.
pub const GATEWAY_TOKEN: &str = "broker-token-of-test-gateways";
/// The token with which the workers of every test stack call the broker.
pub const WORKER_TOKEN: &str = "broker-token-of-test-workers";
/// The sandbox token of every test stack.
pub(crate) const SANDBOX_TOKEN: &str = "sandbox-token-of-a-test";

/// The gateway's command line.
#[derive(Debug, clap::Parser)]
pub struct Gateway {
    /// The parsed arguments.
    #[command(flatten)]
    pub config: gateway::config::Config,
}

/// A worker's command line.
#[derive(Debug, clap::Parser)]
pub struct Worker {
    /// The parsed arguments.
    #[command(flatten)]
    pub config: worker::config::Config,
}

/// The sandbox's command line.
#[derive(Debug, clap::Parser)]
pub struct Sandbox {
    /// The parsed arguments.
    #[command(flatten)]
    pub config: sandbox::config::Config,
}

/// The broker's command line.
#[derive(Debug, clap::Parser)]
pub struct Broker {
    /// The parsed arguments.
    #[command(flatten)]
    pub config: broker::config::Config,
}

/// The settings of the gateways and the workers of a stack.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) app_url: String,
    pub(crate) system_url: String,
    pub(crate) redis_url: String,
    pub(crate) nats_url: String,
    /// Separates the stack's keys in Redis and its subjects in NATS from those of other stacks.
    pub(crate) namespace: String,
    pub(crate) sandbox_url: String,
    /// `None`: the stack has no broker.
    pub(crate) broker_url: Option<String>,
    /// Whether workers open doors to the network.
    pub(crate) egress: bool,
    /// Loops of one worker.
    pub(crate) slots: u32,
    pub(crate) request_wait_ms: u64,
    /// Maximum simultaneous connections of a gateway.
    pub(crate) connections_max: usize,
    /// Further arguments of the gateway.
    pub(crate) gateway: &'static [&'static str],
    /// Further arguments of the workers.
    pub(crate) worker: &'static [&'static str],
    /// The file with the model providers.
    pub(crate) config: PathBuf,
}

/// The settings of the broker of a stack.
#[derive(Debug, Clone)]
pub struct BrokerSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Postgres as its role.
    pub database_url: String,
    pub key_file: PathBuf,
    /// The directory of the doors of sessions.
    pub egress: PathBuf,
    /// The directory of pushes.
    pub push: PathBuf,
    /// What it knows of the network outside.
    pub outside: Outside,
}

/// The network outside, as the broker and sandboxes know it.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    /// The addresses of hosts: `packages.example.com=127.0.0.1:8000`.
    pub hosts: Vec<String>,
    /// Networks outside the public internet that sessions may reach.
    pub networks: Vec<String>,
    /// Registries of images without TLS.
    pub registries: Vec<String>,
    /// The certificates that programs in sandboxes trust.
    pub ca: Option<PathBuf>,
    /// The certificate of a server of git, as PEM.
    pub git_certificate: Option<String>,
    /// Whether the sandbox machine reaches that server too, for clones without a credential.
    pub has_public_git: bool,
    /// The URL of the proxy through which the broker and these clones reach all hosts but those above.
    pub upstream_proxy: Option<String>,
}

impl Outside {
    /// The arguments with which the sandbox machine reaches the server of git. `directory`: of the file with its certificate.
    pub(crate) fn git_arguments(&self, directory: &Path) -> Vec<String> {
        let Some(certificate) = self.git_certificate.as_ref().filter(|_| self.has_public_git) else {
            return vec![];
        };
        let file = directory.join("public-git-ca.pem");
        std::fs::write(&file, certificate).expect("a certificate");
        let mut arguments = vec!["--git-ca".to_owned(), file.display().to_string()];
        for host in &self.hosts {
            arguments.extend(["--git-hosts".to_owned(), host.clone()]);
        }
        if let Some(url) = &self.upstream_proxy {
            arguments.extend(["--git-proxy".to_owned(), url.clone()]);
        }
        arguments
    }
}

/// The settings of the sandbox service of a stack.
#[derive(Debug, Clone)]
pub(crate) struct SandboxSettings {
    /// The address to listen on. With port 0 the service chooses a free port.
    pub(crate) listen: SocketAddr,
    /// The directory of its files.
    pub(crate) data: PathBuf,
    /// The directory below which `file://` repositories may be cloned.
    pub(crate) repositories: PathBuf,
    /// The first of the users that its sandboxes run as.
    pub(crate) uid_base: u32,
    /// The directory of the doors of sessions, if there is a broker.
    pub(crate) egress: Option<PathBuf>,
    /// The certificates that programs trust.
    pub(crate) ca: Option<PathBuf>,
    /// What leads it to a server of git.
    pub(crate) git: Vec<String>,
    pub(crate) further: &'static [&'static str],
}

impl Settings {
    fn shared(&self, role: &str) -> Vec<String> {
        let pairs = [
            ("--database-url", self.app_url.as_str()),
            ("--system-database-url", &self.system_url),
            ("--nats-url", &self.nats_url),
            ("--redis-url", &self.redis_url),
            ("--namespace", &self.namespace),
            ("--sandbox-url", &self.sandbox_url),
            ("--sandbox-token", SANDBOX_TOKEN),
            ("--connections", "3"),
        ];
        let arguments = pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]);
        std::iter::once(role.to_owned()).chain(arguments).collect()
    }

    pub(crate) fn gateway_arguments(&self) -> Vec<String> {
        let mut arguments = self.shared("gateway");
        arguments.extend(["--models", MODELS, "--operator-key", OPERATOR_KEY].map(ToOwned::to_owned));
        arguments.extend(["--connections-max".to_owned(), self.connections_max.to_string()]);
        arguments.extend(self.broker(GATEWAY_TOKEN));
        arguments.extend(self.gateway.iter().map(|it| (*it).to_owned()));
        arguments
    }

    fn broker(&self, token: &str) -> Vec<String> {
        let Some(url) = &self.broker_url else { return vec![] };
        ["--broker-url", url, "--broker-token", token].map(ToOwned::to_owned).into()
    }

    pub(crate) fn worker_arguments(&self, number: usize) -> Vec<String> {
        let mut arguments = self.shared("worker");
        arguments.extend(["--config".to_owned(), self.config.display().to_string()]);
        arguments.extend(["--slots".to_owned(), self.slots.to_string()]);
        arguments.extend(["--request-wait-ms".to_owned(), self.request_wait_ms.to_string()]);
        arguments.extend(["--name".to_owned(), format!("worker-{number}")]);
        if self.egress {
            arguments.extend(self.broker(WORKER_TOKEN));
        }
        arguments.extend(self.worker.iter().map(|it| (*it).to_owned()));
        // Tests count the requests of the sessions that they prompt.
        if !self.worker.contains(&"--warm-ups") {
            arguments.extend(["--warm-ups", "0"].map(ToOwned::to_owned));
        }
        arguments
    }
}

impl BrokerSettings {
    /// The settings of a broker at a free address, with its key in `directory`.
    pub(crate) async fn of(database: &Database, directory: &Path, outside: Outside) -> Self {
        Self {
            listen: free_address().await,
            database_url: database.broker_url.clone(),
            key_file: directory.join("broker-key"),
            egress: directory.join("egress"),
            push: directory.join("push"),
            outside,
        }
    }

    /// The address at which gateways reach the broker.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// The command line, the role first.
    pub fn arguments(&self) -> Vec<String> {
        let pairs = [
            ("--listen", self.listen.to_string()),
            ("--database-url", self.database_url.clone()),
            ("--key-file", self.key_file.display().to_string()),
            ("--tokens", format!("gateway:{GATEWAY_TOKEN},worker:{WORKER_TOKEN}")),
            ("--connections", "2".to_owned()),
            ("--egress", self.egress.display().to_string()),
            ("--push", self.push.display().to_string()),
            // The double of GitHub takes fast writes.
            ("--forge-write-gap-ms", "0".to_owned()),
        ];
        let hosts = self.outside.hosts.iter().map(|host| ("--hosts", host.clone()));
        let registries = self.outside.registries.iter().map(|host| ("--registry-plaintext", host.clone()));
        let networks = self.outside.networks.iter().map(|network| ("--networks", network.clone()));
        let upstream = self.outside.upstream_proxy.iter().map(|url| ("--upstream-proxy", url.clone()));
        let git_ca = self.outside.git_certificate.as_ref().map(|certificate| {
            let file = self.egress.with_extension("git-ca.pem");
            std::fs::write(&file, certificate).expect("a certificate");
            ("--git-ca", file.display().to_string())
        });
        let arguments = pairs
            .into_iter()
            .chain(hosts)
            .chain(git_ca)
            .chain(upstream)
            .chain(networks)
            .chain(registries)
            .flat_map(|(name, value)| [name.to_owned(), value]);
        std::iter::once("broker".to_owned()).chain(arguments).collect()
    }
}

impl SandboxSettings {
    /// The address at which services reach the sandbox; only known if the port is fixed.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    pub(crate) fn arguments(&self) -> Vec<String> {
        let pairs = [
            ("--listen", self.listen.to_string()),
            ("--data-directory", self.data.display().to_string()),
            ("--token", SANDBOX_TOKEN.to_owned()),
            ("--file-roots", self.repositories.display().to_string()),
            ("--uid-base", self.uid_base.to_string()),
            ("--uids", SANDBOX_USERS.to_string()),
            // Tests run on machines of developers too.
            ("--without", "memory,cpu,disk,users,landlock,terminals".to_owned()),
        ];
        let egress = self.egress.iter().map(|directory| ("--egress", directory.display().to_string()));
        let ca = self.ca.iter().map(|file| ("--egress-ca", file.display().to_string()));
        let arguments =
            pairs.into_iter().chain(egress).chain(ca).flat_map(|(name, value)| [name.to_owned(), value]);
        let further = self.further.iter().map(|it| (*it).to_owned());
        let all = std::iter::once("sandbox".to_owned()).chain(arguments);
        all.chain(self.git.iter().cloned()).chain(further).collect()
    }
}

/// Configures the scripted model under every protocol, with a price. The model `eyes` accepts images and PDF files.
pub fn provider_config(url: &str) -> String {
    let model = r#"models = [
  { id = "demo", context = 100000, output = 8000, reasoning = true, variants = ["low", "high"], price_usd_per_mtok = { input = 3.0, output = 15.0 } },
  { id = "eyes", context = 100000, output = 8000, reasoning = true, images = true, pdf = true },
]"#;
    format!(
        "model = \"chat/demo\"\n\n[[provider]]\nid = \"chat\"\nkind = \"openai-chat\"\nbase_url = \"{url}/v1\"\n{model}\n\n\
         [[provider]]\nid = \"claude\"\nkind = \"anthropic\"\nbase_url = \"{url}\"\n{model}\n\n\
         [[provider]]\nid = \"responses\"\nkind = \"openai-responses\"\nbase_url = \"{url}/v1\"\n{model}\n\n\
         [[provider]]\nid = \"gemini\"\nkind = \"gemini\"\nbase_url = \"{url}\"\n{model}\n"
    )
}

/// The ports for services that keep their address when they restart. The system gives none of them to a client, so no connection takes one
/// before its service does.
const KEPT_PORTS: Range<u16> = 10_000..32_000;
/// Those of them that one test has. Tests that run at the same time have different ones.
const TEST_PORTS: u16 = 200;
/// What the runner of the tests numbers them with while they run.
const SLOT: &str = "NEXTEST_TEST_GLOBAL_SLOT";

/// Finds a loopback address whose port is free, for a service that keeps its address when it restarts.
pub(crate) async fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let slot: Option<u32> = std::env::var(SLOT).ok().and_then(|slot| slot.parse().ok());
    let slot = slot.unwrap_or_else(std::process::id);
    let blocks = (KEPT_PORTS.end - KEPT_PORTS.start) / TEST_PORTS;
    let first = KEPT_PORTS.start + (slot % u32::from(blocks)) as u16 * TEST_PORTS;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % TEST_PORTS;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if tokio::net::TcpListener::bind(address).await.is_ok() {
            return address;
        }
    }
}
