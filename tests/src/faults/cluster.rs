//! The system under test as real processes on this machine: Postgres, Redis, NATS, two gateways, four workers, one
//! sandbox, and the scripted model. Each service reaches each server through a separate proxy.

mod process;

use crate::{
    api::Api,
    settings::{self, SandboxSettings, Settings},
};
use anyhow::{Context as _, Result};
use process::{Process, Spec};
use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};
use testkit::{
    model::ScriptedModel,
    proxy::{Proxy, link::Rules},
};
use tokio::sync::Mutex;

pub const GATEWAYS: usize = 2;
pub const WORKERS: usize = 4;
/// Number of loops of each worker: few, so that sessions must wait and tenants compete.
pub const SLOTS: u32 = 4;
/// Time limit for a person to answer; milliseconds. Short, because some requests get no answer and a turn waits for each
/// of them.
const REQUEST_WAIT_MS: u64 = 4_000;
/// Time after which an idle sandbox ends; milliseconds. Short, so that the observers soon notice one that does not end.
const SANDBOX_IDLE_MS: u32 = 3_000;
/// Limit of connections to Postgres: connections of dead clients linger behind silent links.
const POSTGRES_CONNECTIONS: u32 = 400;

/// A server that services connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    Postgres,
    Redis,
    Nats,
    Sandbox,
}

pub const SERVERS: [Server; 4] = [Server::Postgres, Server::Redis, Server::Nats, Server::Sandbox];

impl Server {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Nats => "nats",
            Self::Sandbox => "sandbox",
        }
    }
}

/// A service that connects to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// A gateway, from 0.
    Gateway(usize),
    /// A worker, from 0.
    Worker(usize),
}

impl Service {
    pub fn all() -> impl Iterator<Item = Self> {
        (0..GATEWAYS).map(Self::Gateway).chain((0..WORKERS).map(Self::Worker))
    }

    /// Its name in reports; a worker has the same name in events.
    pub fn name(self) -> String {
        match self {
            Self::Gateway(number) => format!("gateway-{}", number + 1),
            Self::Worker(number) => format!("worker-{}", number + 1),
        }
    }
}

/// The running system. Dropping it ends all of its processes.
pub struct Cluster {
    /// The URL of Postgres for its superuser, without a proxy.
    pub postgres_url: String,
    /// The URL of Redis, without a proxy.
    pub redis_url: String,
    /// The URL of NATS, without a proxy.
    pub nats_url: String,
    /// Prefix of its keys in Redis.
    pub namespace: String,
    pub servers: Mutex<local::stack::Stack>,
    pub services: BTreeMap<Service, Mutex<Process>>,
    pub sandbox: Mutex<Process>,
    pub links: BTreeMap<(Service, Server), Proxy>,
    /// The links from clients to the gateways.
    pub fronts: Vec<Proxy>,
    /// The model, with the requests that it received.
    pub model: ScriptedModel,
    /// The directory of the run.
    pub directory: PathBuf,
}

/// The parameters of a cluster.
#[derive(Debug, Clone)]
pub struct Setup {
    /// An empty directory that every user of the machine may enter.
    pub directory: PathBuf,
    /// The `flotilla` program.
    pub program: PathBuf,
    /// Number of loops of each worker.
    pub slots: u32,
}

impl Cluster {
    /// Starts all processes and waits until they answer.
    ///
    /// # Errors
    /// If a process does not start; the error names it.
    pub async fn start(setup: &Setup) -> Result<Self> {
        let directory = &setup.directory;
        let options = local::options::Options { fsync: true, postgres_connections: POSTGRES_CONNECTIONS };
        let servers =
            local::stack::start(&directory.join("servers"), options).await.context("start the servers")?;
        let bootstrap =
            gateway::admin::bootstrap(&servers.postgres_url, "operator", gateway::admin::Key::New).await?;
        let model = testkit::model("").await;
        let config = directory.join("flotilla.toml");
        fs::write(&config, settings::provider_config(&model.url)).context("write the providers")?;
        let repositories = directory.join("repositories");
        fs::create_dir_all(&repositories).context("create a directory")?;
        let sandbox = setup.sandbox(repositories);
        let mut sandbox = Process::new(setup.spec("sandbox", sandbox.arguments()));
        sandbox.start().await?;
        let settings = Settings {
            app_url: bootstrap.app_url,
            system_url: bootstrap.system_url,
            redis_url: servers.redis_url.clone(),
            nats_url: servers.nats_url.clone(),
            namespace: testkit::namespace(),
            sandbox_url: format!("http://{}", sandbox.ready().await?),
            broker_url: None,
            egress: false,
            slots: setup.slots,
            request_wait_ms: REQUEST_WAIT_MS,
            connections_max: chassis::port::CONNECTIONS_MAX,
            gateway: &[],
            worker: &[],
            config,
        };
        let (mut links, mut services) = (BTreeMap::new(), BTreeMap::new());
        for service in Service::all() {
            let mut own = settings.clone();
            for server in SERVERS {
                let proxy = own.insert_proxy(server).await?;
                links.insert((service, server), proxy);
            }
            let arguments = match service {
                Service::Gateway(_) => own.gateway_arguments(),
                Service::Worker(number) => own.worker_arguments(number + 1),
            };
            let mut process = Process::new(setup.spec(&service.name(), arguments));
            process.start().await?;
            services.insert(service, Mutex::new(process));
        }
        let mut fronts = vec![];
        for (service, process) in &mut services {
            let address = process.get_mut().ready().await?;
            if matches!(service, Service::Gateway(_)) {
                fronts.push(Proxy::start(address).await?);
            }
        }
        Ok(Self {
            postgres_url: servers.postgres_url.clone(),
            redis_url: servers.redis_url.clone(),
            nats_url: servers.nats_url.clone(),
            namespace: settings.namespace,
            servers: Mutex::new(servers),
            services,
            sandbox: Mutex::new(sandbox),
            links,
            fronts,
            model,
            directory: directory.clone(),
        })
    }

    pub async fn tenant(&self, name: &str) -> Api {
        Api::new_tenant(&self.gateway_urls()[0], name).await
    }

    /// Returns the URLs of the gateways for clients.
    pub fn gateway_urls(&self) -> Vec<String> {
        self.fronts.iter().map(|front| format!("http://{}", front.address)).collect()
    }

    /// Restarts a service and redirects clients to it.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn restart(&self, service: Service) -> Result<()> {
        let mut process = self.services[&service].lock().await;
        process.start().await?;
        let address = process.ready().await?;
        if let Service::Gateway(number) = service {
            self.fronts[number].retarget(address);
        }
        Ok(())
    }

    /// Restarts the sandbox and redirects its clients to it.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn restart_sandbox(&self) -> Result<()> {
        let mut process = self.sandbox.lock().await;
        process.start().await?;
        let address = process.ready().await?;
        for ((_, server), link) in &self.links {
            if *server == Server::Sandbox {
                link.retarget(address);
            }
        }
        Ok(())
    }

    pub fn repair_links(&self) {
        for proxy in self.links.values().chain(&self.fronts) {
            proxy.disarm();
            proxy.set(Rules::default());
        }
    }

    /// Returns the directory of the workspaces: a directory for each tenant, then one for each session.
    pub fn workspaces(&self) -> PathBuf {
        self.directory.join("sandbox/ws")
    }
}

impl Setup {
    fn sandbox(&self, repositories: PathBuf) -> SandboxSettings {
        SandboxSettings {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data: self.directory.join("sandbox"),
            repositories,
            // Other tests use lower ids. Each service takes 65,536 users from here on.
            uid_base: 1_700_000_000 + std::process::id() % 200_000 * settings::SANDBOX_USERS,
            egress: None,
            ca: None,
            git: vec![],
            further: &[],
        }
    }

    fn spec(&self, name: &str, mut arguments: Vec<String>) -> Spec {
        arguments.extend(["--log-format".to_owned(), "json".to_owned()]);
        let env = vec![("FLOTILLA_SANDBOX_IDLE_MS", SANDBOX_IDLE_MS.to_string())];
        let (name, program, directory) = (name.to_owned(), self.program.clone(), self.directory.clone());
        Spec { name, program, arguments, env, directory }
    }
}

impl Settings {
    /// Inserts a proxy between one service and a server.
    async fn insert_proxy(&mut self, server: Server) -> Result<Proxy> {
        let urls = match server {
            Server::Postgres => vec![&mut self.app_url, &mut self.system_url],
            Server::Redis => vec![&mut self.redis_url],
            Server::Nats => vec![&mut self.nats_url],
            Server::Sandbox => vec![&mut self.sandbox_url],
        };
        let target = address(urls[0])?;
        let proxy = Proxy::start(target).await.context("start a proxy")?;
        for url in urls {
            *url = url.replace(&target.to_string(), &proxy.address.to_string());
        }
        Ok(proxy)
    }
}

/// Returns the address in a URL.
///
/// # Errors
/// If the URL contains no address.
pub fn address(url: &str) -> Result<SocketAddr> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let host = host.split('/').next().unwrap_or_default();
    host.parse().with_context(|| format!("find an address in a URL with the host {host}"))
}

/// Finds the program of that name next to this one.
///
/// # Errors
/// If it is not built.
pub fn sibling(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    // Tests are one directory deeper.
    let found = own.ancestors().skip(1).take(2).map(|dir: &Path| dir.join(name)).find(|path| path.exists());
    found.with_context(|| format!("{name} is not built: run `cargo build --workspace`"))
}
