//! Runs the real services inside a test, against real Postgres, Redis and NATS. Tests call their public API. Only the
//! model is scripted: an HTTP server that speaks the providers' protocols.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a broken set-up ends the test"
)]

pub mod api;
pub mod bench;
pub mod demo;
pub mod doors;
pub mod faults;
pub mod layers;
pub mod opencode;
pub mod packages;
pub mod settings;
pub mod sim;
pub mod turn;

pub use testkit::left_out;

use api::Api;
use clap::Parser as _;
use rpc::v1;
use settings::{
    Broker, BrokerSettings, Gateway, OPERATOR_KEY, Outside, Sandbox, SandboxSettings, Settings, Worker,
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tempfile::TempDir;
use testkit::{database::Database, model::ScriptedModel};
use tokio_util::sync::CancellationToken;

/// The options of a stack.
#[derive(Debug, Clone)]
pub struct Options {
    /// Further arguments of the gateway.
    pub gateway: &'static [&'static str],
    /// Further arguments of the workers.
    pub worker: &'static [&'static str],
    /// Further arguments of the sandbox service.
    pub sandbox_arguments: &'static [&'static str],
    /// The script of the model, in TOML. Directives in prompts work with every script.
    pub script: String,
    /// Number of workers at the start.
    pub workers: usize,
    /// Number of loops of each worker.
    pub slots: u32,
    /// The URL of Redis; by default the shared server.
    pub redis_url: Option<String>,
    /// The URL of NATS; by default the shared server.
    pub nats_url: Option<String>,
    /// Whether the sandbox runs from the start.
    pub sandbox: bool,
    /// Whether the broker runs from the start.
    pub broker: bool,
    /// What the broker and sandboxes know of the network outside.
    pub outside: Outside,
    /// The URL of a model; by default the scripted model.
    pub model_url: Option<String>,
    /// Postgres for the two roles; by default a database of the shared server.
    pub database_urls: Option<DatabaseUrls>,
    /// The time limit for a person to answer a request; milliseconds.
    pub request_wait_ms: u64,
    /// Maximum simultaneous connections of the gateway.
    pub connections_max: usize,
}

/// The URLs of one database for the two roles of the services.
#[derive(Debug, Clone)]
pub struct DatabaseUrls {
    /// For `flotilla_app`, which sees one tenant at a time.
    pub app: String,
    /// For `flotilla_system`, which bypasses row-level security.
    pub system: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            script: String::new(),
            workers: 1,
            slots: 16,
            redis_url: None,
            nats_url: None,
            sandbox: true,
            broker: false,
            outside: Outside::default(),
            model_url: None,
            database_urls: None,
            request_wait_ms: domain::limits::REQUEST_WAIT_MS,
            connections_max: chassis::port::CONNECTIONS_MAX,
            gateway: &[],
            worker: &[],
            sandbox_arguments: &[],
        }
    }
}

/// A running stack. Dropping it ends everything in it.
pub struct Stack {
    /// The tenant's view of the gateway.
    pub api: Api,
    /// The model, with the requests that it received.
    pub model: ScriptedModel,
    pub database: Database,
    /// A directory below which `file://` repositories may be cloned.
    pub repositories: PathBuf,
    gateway: ServiceHandle,
    workers: Vec<ServiceHandle>,
    sandbox: Option<ServiceHandle>,
    broker: Option<ServiceHandle>,
    settings: Settings,
    sandbox_settings: SandboxSettings,
    broker_settings: BrokerSettings,
    _directory: TempDir,
}

/// A service inside this process.
pub struct ServiceHandle {
    pub url: String,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
    /// A separate runtime, so that all tasks of the service can end at once.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for ServiceHandle {
    fn drop(&mut self) {
        // Simulates a crash: every task stops at its next await, and nothing is drained.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Stack {
    /// Starts a stack with one worker.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// Starts a stack with one worker and without a sandbox service, for sessions that have no files and call no tool. A sandbox
    /// service tests its walls when it starts, with some fifty processes.
    pub async fn without_sandbox() -> Self {
        Self::with(Options { sandbox: false, ..Options::default() }).await
    }

    /// Starts a gateway without workers and without a sandbox service. A test may add workers for sessions without files.
    pub async fn gateway_alone() -> Self {
        Self::with(Options { workers: 0, sandbox: false, ..Options::default() }).await
    }

    pub async fn with(options: Options) -> Self {
        chassis::install_crypto();
        enable_logs();
        let servers = testkit::servers().await;
        let model = testkit::model(&options.script).await;
        // Workspaces belong to other users, who must be able to enter this directory.
        let directory =
            tempfile::Builder::new().prefix("flotilla-e2e-").permissions(world_readable()).tempdir().unwrap();
        let repositories = directory.path().join("repositories");
        std::fs::create_dir_all(&repositories).unwrap();
        let config = directory.path().join("flotilla.toml");
        let model_url = options.model_url.as_deref().unwrap_or(&model.url);
        std::fs::write(&config, settings::provider_config(model_url)).unwrap();
        let sandbox_settings = sandbox_settings(directory.path(), &options).await;
        let sandbox = async {
            if options.sandbox { Some(ServiceHandle::sandbox(&sandbox_settings).await) } else { None }
        };
        // The sandbox tests its isolation while Postgres copies the database.
        let (database, sandbox) = tokio::join!(testkit::database(), sandbox);
        let urls = options.database_urls.unwrap_or_else(|| DatabaseUrls {
            app: database.app_url.clone(),
            system: database.system_url.clone(),
        });
        let broker_settings = BrokerSettings::of(&database, directory.path(), options.outside).await;
        let broker = if options.broker { Some(ServiceHandle::broker(&broker_settings).await) } else { None };
        let settings = Settings {
            app_url: urls.app,
            system_url: urls.system,
            redis_url: options
                .redis_url
                .or_else(|| unreachable_url("redis"))
                .unwrap_or_else(|| servers.redis_url.clone()),
            nats_url: options
                .nats_url
                .or_else(|| unreachable_url("nats"))
                .unwrap_or_else(|| servers.nats_url.clone()),
            namespace: testkit::namespace(),
            sandbox_url: sandbox_settings.url(),
            broker_url: Some(broker_settings.url()),
            egress: options.broker,
            slots: options.slots,
            request_wait_ms: options.request_wait_ms,
            connections_max: options.connections_max,
            gateway: options.gateway,
            worker: options.worker,
            config,
        };
        let workers = (1..=options.workers).map(|number| ServiceHandle::worker(&settings, number));
        let (gateway, workers) =
            tokio::join!(ServiceHandle::gateway(&settings), futures::future::join_all(workers));
        let api = Api::new_tenant(&gateway.url, "acme").await;
        Self {
            api,
            model,
            database,
            repositories,
            gateway,
            workers,
            sandbox,
            broker,
            settings,
            sandbox_settings,
            broker_settings,
            _directory: directory,
        }
    }

    /// Another tenant of the same gateway.
    pub async fn other_tenant(&self) -> Api {
        Api::new_tenant(&self.gateway.url, "umbrella").await
    }

    /// The operator's view of the gateway.
    pub fn operator(&self) -> Api {
        Api::with_key(&self.gateway.url, OPERATOR_KEY)
    }

    pub fn gateway_url(&self) -> &str {
        &self.gateway.url
    }

    /// Returns all keys and values of the stack in Redis, as one text.
    pub async fn redis_content(&self) -> String {
        const SCRIPT: &str = "\"local all={};for _,k in ipairs(redis.call('KEYS',ARGV[1]))do \
            local t=redis.call('TYPE',k).ok;all[#all+1]=k;\
            local v=t=='string'and{redis.call('GET',k)}or(t=='hash'and redis.call('HGETALL',k))or(t=='set'and redis.call('SMEMBERS',k))\
            or redis.call('ZRANGE',k,0,-1);for _,x in ipairs(v)do all[#all+1]=x end end;return table.concat(all,' ')\"";
        let pattern = format!("*{}*", self.settings.namespace);
        let command = ["EVAL", SCRIPT, "0", &pattern];
        faults::observe::call_redis_at(&self.settings.redis_url, &command).await.expect("an answer of Redis")
    }

    /// Returns the number of the stack's keys in Redis.
    pub async fn redis_keys(&self) -> u64 {
        const SCRIPT: &str = "\"return tostring(#redis.call('KEYS',ARGV[1]))\"";
        let pattern = format!("*{}*", self.settings.namespace);
        let command = ["EVAL", SCRIPT, "0", &pattern];
        let answer = faults::observe::call_redis_at(&self.settings.redis_url, &command)
            .await
            .expect("an answer of Redis");
        answer.lines().last().and_then(|number| number.parse().ok()).expect("a number")
    }

    /// Connects to Redis and NATS as the services do.
    pub async fn bus(&self) -> bus::Bus {
        let settings = &self.settings;
        bus::Bus::connect(&settings.nats_url, &settings.redis_url, &settings.namespace).await.expect("a bus")
    }

    /// Starts a second gateway, which ends with the result.
    pub async fn second_gateway(&self) -> ServiceHandle {
        ServiceHandle::gateway(&self.settings).await
    }

    /// Starts a further gateway whose arguments `change` changes, as a second one may have others.
    ///
    /// # Errors
    /// Why it does not start.
    pub async fn try_gateway(&self, change: impl FnOnce(&mut Vec<String>)) -> anyhow::Result<ServiceHandle> {
        let mut arguments = self.settings.gateway_arguments();
        change(&mut arguments);
        let config = Gateway::parse_from(arguments).config;
        ServiceHandle::try_start(|service| gateway::run(config, service)).await
    }

    pub async fn add_worker(&mut self) {
        let number = self.workers.len() + 1;
        self.workers.push(ServiceHandle::worker(&self.settings, number).await);
    }

    /// Crashes a worker: its loops stop at once, it hands nothing over, and its lease expires.
    pub fn crash_worker(&mut self, index: usize) {
        drop(self.workers.remove(index));
    }

    /// Asks a worker to stop, and waits until it has handed its sessions over.
    pub async fn drain_worker(&mut self, index: usize) {
        self.workers.remove(index).stop_and_join().await;
    }

    pub async fn stop_sandbox(&mut self) {
        self.sandbox.take().expect("a sandbox").stop_and_join().await;
    }

    /// Removes every file of a sandbox service that was stopped: its machine was replaced.
    pub fn lose_sandbox_files(&self) {
        assert!(self.sandbox.is_none(), "the service was stopped");
        std::fs::remove_dir_all(&self.sandbox_settings.data).expect("the files of the sandbox service");
    }

    /// The data directory of the sandbox service.
    pub fn sandbox_data(&self) -> &Path {
        &self.sandbox_settings.data
    }

    /// The directory of a session of [`Stack::api`] with a workspace of its own, on the sandbox machine.
    pub fn workspace(&self, session: &str) -> PathBuf {
        self.sandbox_data().join("ws").join(self.api.tenant_id.replace('-', "")).join(session)
    }

    /// The directory of what the commands of a session of [`Stack::api`] printed, on the sandbox machine.
    pub fn outputs(&self, session: &str) -> PathBuf {
        self.sandbox_data().join("execs").join(self.api.tenant_id.replace('-', "")).join(session)
    }

    /// Restarts the sandbox service at the same address with the same data.
    pub async fn start_sandbox(&mut self) {
        self.sandbox = Some(ServiceHandle::sandbox(&self.sandbox_settings).await);
    }

    pub fn broker_settings(&self) -> &BrokerSettings {
        &self.broker_settings
    }

    /// Starts the broker, always at the same address with the same key.
    pub async fn start_broker(&mut self) {
        self.broker = Some(ServiceHandle::broker(&self.broker_settings).await);
    }

    pub async fn stop_broker(&mut self) {
        self.broker.take().expect("a broker").stop_and_join().await;
    }

    /// Kills the broker: its connections are cut at once, and nothing is stored.
    pub fn crash_broker(&mut self) {
        drop(self.broker.take().expect("a broker"));
    }

    /// Creates a session with an empty workspace.
    pub async fn session(&self) -> String {
        self.api.session(None).await
    }

    /// Creates a session with the files of `repository`.
    pub async fn session_on(&self, repository: &testkit::git::Repository) -> String {
        let bundle_id = self.api.upload(&repository.bundle()).await;
        let from = Some(v1::source::From::BundleId(bundle_id));
        self.api.session(Some(v1::Source { from, revision: String::new() })).await
    }
}

impl ServiceHandle {
    async fn gateway(settings: &Settings) -> Self {
        let config = Gateway::parse_from(settings.gateway_arguments()).config;
        Self::start(|service| gateway::run(config, service)).await
    }

    async fn worker(settings: &Settings, number: usize) -> Self {
        let config = Worker::parse_from(settings.worker_arguments(number)).config;
        Self::start(|service| worker::run(config, service)).await
    }

    async fn sandbox(settings: &SandboxSettings) -> Self {
        let config = Sandbox::parse_from(settings.arguments()).config;
        Self::start(|service| sandbox::run(config, service)).await
    }

    async fn broker(settings: &BrokerSettings) -> Self {
        let config = Broker::parse_from(settings.arguments()).config;
        Self::start(|service| broker::run(config, service)).await
    }

    async fn start<F>(run: impl FnOnce(chassis::Service) -> F) -> Self
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        Self::try_start(run).await.unwrap_or_else(|error| panic!("{error:?}"))
    }

    async fn try_start<F>(run: impl FnOnce(chassis::Service) -> F) -> anyhow::Result<Self>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (service, mut ready) = chassis::Service::in_process();
        let stop = service.shutdown.clone();
        let body = run(service);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let task = runtime.spawn(body);
        let mut running = Self { url: String::new(), stop, task, runtime: Some(runtime) };
        match ready.recv().await {
            Ok(ready) => running.url = ready.url,
            // Its end says why.
            Err(error) => {
                let ended = (&mut running.task).await.expect("no panic");
                return Err(ended.err().unwrap_or_else(|| error.into()));
            }
        }
        Ok(running)
    }

    async fn stop_and_join(mut self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(30), &mut self.task).await;
        ended.expect("the service stops within 30 s").expect("no panic").expect("no error");
    }
}

/// Returns whether the suite runs without a server (`redis`, `nats`). FLOTILLA_TEST_WITHOUT lists these servers.
pub fn is_without(server: &str) -> bool {
    std::env::var("FLOTILLA_TEST_WITHOUT").is_ok_and(|servers| servers.split(',').any(|name| name == server))
}

/// Returns whether the current test must be skipped because the suite runs without a server that it needs. Records the
/// reason.
pub fn is_left_out(needs: &[&str], why: &str) -> bool {
    let is_skipped = needs.iter().any(|server| is_without(server));
    if is_skipped {
        left_out::skip(why);
    }
    is_skipped
}

/// The URL of a server that the suite runs without: no process listens there.
fn unreachable_url(server: &str) -> Option<String> {
    is_without(server).then(|| format!("{server}://127.0.0.1:9"))
}

/// Shows the logs of the services if FLOTILLA_LOG is set, to debug a failed test.
fn enable_logs() {
    if let Ok(log_filter) = std::env::var("FLOTILLA_LOG") {
        let log_format = chassis::telemetry::LogFormat::Pretty;
        let config = chassis::telemetry::TelemetryConfig { log_format, log_filter, otlp_endpoint: None };
        // A test with two stacks enables the logs twice; the second call fails.
        drop(chassis::telemetry::start("e2e", &config));
    }
}

fn world_readable() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

async fn sandbox_settings(directory: &Path, options: &Options) -> SandboxSettings {
    SandboxSettings {
        listen: settings::free_address().await,
        data: directory.join("sandbox"),
        repositories: directory.join("repositories"),
        // Sandboxes of tests that run in parallel have different users.
        uid_base: uid_base(),
        egress: options.broker.then(|| directory.join("egress")),
        ca: options.outside.ca.clone(),
        git: options.outside.git_arguments(directory),
        further: options.sandbox_arguments,
    }
}

/// The first of the users for the sandboxes of one stack: a process has eight such blocks, and every other process others.
fn uid_base() -> u32 {
    static STACKS: AtomicU32 = AtomicU32::new(0);
    let stack = STACKS.fetch_add(1, Ordering::Relaxed) % 8;
    1_000_000 + (std::process::id() % 200_000 * 8 + stack) * settings::SANDBOX_USERS
}
