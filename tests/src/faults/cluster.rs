//! The system under test as real processes on this machine: Postgres, Redis, NATS, two gateways, four workers, one
//! sandbox, and the scripted model. Each service reaches each server through a proxy of its own.

use super::process::{Process, Spec};
use crate::{Settings, api::Api, parts};
use anyhow::{Context as _, Result};
use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};
use testkit::{
    model::ScriptedModel,
    proxy::{Proxy, Rules},
};
use tokio::sync::Mutex;

/// Gateways.
pub const GATEWAYS: usize = 2;
/// Workers.
pub const WORKERS: usize = 4;
/// Loops of one worker: few, so that sessions must wait and tenants compete.
pub const SLOTS: u32 = 4;
/// How long people have to answer: some never do, and a turn shall not wait for long for each of its calls. Milliseconds.
const REQUEST_WAIT_MS: u64 = 4_000;
/// A sandbox that is idle for so long ends: leftovers are then seen soon. Milliseconds.
const SANDBOX_IDLE_MS: u32 = 3_000;
/// Connections of Postgres: those of dead clients linger behind silent links.
const POSTGRES_CONNECTIONS: u32 = 400;

/// A server that services connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// The truth.
    Postgres,
    /// The ready queue.
    Redis,
    /// Live events.
    Nats,
    /// Tools.
    Sandbox,
}

/// All of them.
pub const SERVERS: [Server; 4] = [Server::Postgres, Server::Redis, Server::Nats, Server::Sandbox];

impl Server {
    /// Its name in reports.
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
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..GATEWAYS).map(Self::Gateway).chain((0..WORKERS).map(Self::Worker))
    }

    /// Its name in reports, and a worker's in events.
    pub fn name(self) -> String {
        match self {
            Self::Gateway(number) => format!("gateway-{}", number + 1),
            Self::Worker(number) => format!("worker-{}", number + 1),
        }
    }
}

/// The running system. Dropping it ends everything.
pub struct Cluster {
    /// Postgres as its superuser, past every proxy.
    pub postgres_url: String,
    /// Redis, past every proxy.
    pub redis_url: String,
    /// NATS, past every proxy.
    pub nats_url: String,
    /// What keeps its keys apart in Redis.
    pub namespace: String,
    /// The three servers.
    pub servers: Mutex<local::stack::Stack>,
    /// The gateways and workers.
    pub services: BTreeMap<Service, Mutex<Process>>,
    /// The sandbox.
    pub sandbox: Mutex<Process>,
    /// From a service to a server.
    pub links: BTreeMap<(Service, Server), Proxy>,
    /// From clients to each gateway.
    pub fronts: Vec<Proxy>,
    /// The model and what it was asked.
    pub model: ScriptedModel,
    /// Where everything of this run is.
    pub directory: PathBuf,
}

/// What differs between runs.
#[derive(Debug, Clone)]
pub struct Setup {
    /// An empty directory that every user of the machine may pass through.
    pub directory: PathBuf,
    /// The `flotilla` program.
    pub program: PathBuf,
    /// Loops of one worker.
    pub slots: u32,
}

impl Cluster {
    /// Starts everything and waits until it answers.
    ///
    /// # Errors
    /// When something does not start; the sentence says what.
    pub async fn start(setup: &Setup) -> Result<Self> {
        let directory = &setup.directory;
        let options = local::options::Options { fsync: true, postgres_connections: POSTGRES_CONNECTIONS };
        let servers =
            local::stack::start(&directory.join("servers"), options).await.context("start the servers")?;
        let bootstrap =
            gateway::admin::bootstrap(&servers.postgres_url, "operator", gateway::admin::Key::New).await?;
        let model = testkit::model("").await;
        let config = directory.join("flotilla.toml");
        fs::write(&config, parts::provider_config(&model.url)).context("write the providers")?;
        let repositories = directory.join("repositories");
        fs::create_dir_all(&repositories).context("make a directory")?;
        let mut settings = Settings {
            app_url: bootstrap.app_url,
            system_url: bootstrap.system_url,
            redis_url: servers.redis_url.clone(),
            nats_url: servers.nats_url.clone(),
            namespace: testkit::namespace(),
            sandbox_url: "http://127.0.0.1:0".to_owned(),
            slots: setup.slots,
            request_wait_ms: REQUEST_WAIT_MS,
            config,
            data: directory.join("sandbox"),
            repositories,
            // Far from what other tests use; each service takes 65,536 users from here on.
            uid_base: 200_000_000 + std::process::id() % 10_000 * 65_536,
        };
        let mut sandbox = Process::new(setup.spec("sandbox", settings.sandbox_arguments()));
        sandbox.start().await?;
        settings.sandbox_url = format!("http://{}", sandbox.ready().await?);
        let (mut links, mut services) = (BTreeMap::new(), BTreeMap::new());
        for service in Service::all() {
            let mut own = settings.clone();
            for server in SERVERS {
                let proxy = own.lead_through(server).await?;
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

    /// Makes a tenant.
    pub async fn tenant(&self, name: &str) -> Api {
        Api::new_tenant(&self.gateway_urls()[0], name).await
    }

    /// Where clients reach the gateways.
    pub fn gateway_urls(&self) -> Vec<String> {
        self.fronts.iter().map(|front| format!("http://{}", front.address)).collect()
    }

    /// Starts a service again and leads clients to it.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&self, service: Service) -> Result<()> {
        let mut process = self.services[&service].lock().await;
        process.start().await?;
        let address = process.ready().await?;
        if let Service::Gateway(number) = service {
            self.fronts[number].retarget(address);
        }
        Ok(())
    }

    /// Starts the sandbox again and leads everyone to it.
    ///
    /// # Errors
    /// When it does not come up.
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

    /// Mends every link.
    pub fn mend_links(&self) {
        for proxy in self.links.values().chain(&self.fronts) {
            proxy.disarm();
            proxy.set(Rules::default());
        }
    }

    /// Where the files of sessions are: tenants, then sessions.
    pub fn workspaces(&self) -> PathBuf {
        self.directory.join("sandbox/ws")
    }
}

impl Setup {
    fn spec(&self, name: &str, mut arguments: Vec<String>) -> Spec {
        arguments.extend(["--log-format".to_owned(), "json".to_owned()]);
        let env = vec![("FLOTILLA_SANDBOX_IDLE_MS", SANDBOX_IDLE_MS.to_string())];
        let (name, program, directory) = (name.to_owned(), self.program.clone(), self.directory.clone());
        Spec { name, program, arguments, env, directory }
    }
}

impl Settings {
    /// Puts a proxy before a server, for one service.
    async fn lead_through(&mut self, server: Server) -> Result<Proxy> {
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

/// The address in a URL.
///
/// # Errors
/// When there is none.
pub fn address(url: &str) -> Result<SocketAddr> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let place = place.split('/').next().unwrap_or_default();
    place.parse().with_context(|| format!("find an address in a URL that ends in {place}"))
}

/// The program of that name beside this one.
///
/// # Errors
/// When it is not built.
pub fn sibling(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    // Tests are one directory deeper.
    let found = own.ancestors().skip(1).take(2).map(|dir: &Path| dir.join(name)).find(|path| path.exists());
    found.with_context(|| format!("{name} is not built: run `cargo build --workspace`"))
}
