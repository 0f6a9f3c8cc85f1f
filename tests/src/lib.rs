//! The real services, started inside a test against real Postgres, Redis and NATS, and spoken to over their public API.
//! Only the model is scripted: an HTTP server that speaks the providers' protocols.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a broken set-up ends the test"
)]

pub mod api;
pub mod bench;
pub mod faults;
pub mod left_out;
pub mod parts;
pub mod sim;
pub mod turn;

use api::Api;
use clap::Parser as _;
use parts::{Gateway, Sandbox, Worker};
use rpc::v1;
use std::{path::PathBuf, time::Duration};
use tempfile::TempDir;
use testkit::{database::Database, model::ScriptedModel};
use tokio_util::sync::CancellationToken;

/// The operator's key of every test stack.
pub const OPERATOR_KEY: &str = "operator-key-of-a-test";
/// The sandbox token of every test stack.
const SANDBOX_TOKEN: &str = "sandbox-token-of-a-test";
/// The models of every test stack, the default first.
pub const MODELS: &str =
    "chat/demo,claude/demo,responses/demo,gemini/demo,chat/eyes,claude/eyes,responses/eyes,gemini/eyes";

/// What differs between tests.
#[derive(Debug, Clone)]
pub struct Options {
    /// Script of the model, in TOML; directives in prompts work with any.
    pub script: String,
    /// Workers at the start.
    pub workers: usize,
    /// Loops of one worker.
    pub slots: u32,
    /// Where Redis is; the shared one unless given.
    pub redis_url: Option<String>,
    /// Where NATS is; the shared one unless given.
    pub nats_url: Option<String>,
    /// Whether the sandbox runs from the start.
    pub sandbox: bool,
    /// Another model than the scripted one.
    pub model_url: Option<String>,
    /// Postgres for the two roles; a database of the shared server unless given.
    pub database_urls: Option<(String, String)>,
    /// How long people have to answer a request; milliseconds.
    pub request_wait_ms: u64,
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
            model_url: None,
            database_urls: None,
            request_wait_ms: domain::limits::REQUEST_WAIT_MS,
        }
    }
}

/// A running stack. Dropping it ends everything in it.
pub struct Stack {
    /// The tenant's view of the gateway.
    pub api: Api,
    /// The model and what it was asked.
    pub model: ScriptedModel,
    /// The stack's own database.
    pub database: Database,
    /// A directory below which `file://` repositories may be cloned.
    pub repositories: PathBuf,
    gateway: Running,
    workers: Vec<Running>,
    sandbox: Option<Running>,
    settings: Settings,
    _directory: TempDir,
}

/// A service inside this process.
pub struct Running {
    /// Where it answers.
    pub url: String,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
    /// Its own, so that everything of it can end in one moment.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // As a crash: every task stops where it waits, and nothing is drained.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What services of this stack are started with.
#[derive(Debug, Clone)]
struct Settings {
    app_url: String,
    system_url: String,
    redis_url: String,
    nats_url: String,
    namespace: String,
    sandbox_url: String,
    slots: u32,
    request_wait_ms: u64,
    config: PathBuf,
    data: PathBuf,
    repositories: PathBuf,
    uid_base: u32,
}

impl Stack {
    /// Starts a stack with one worker.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// Starts a stack.
    pub async fn with(options: Options) -> Self {
        chassis::install_crypto();
        log_if_asked();
        let servers = testkit::servers().await;
        let model = testkit::model(&options.script).await;
        // Workspaces belong to other users: the way to them must be open.
        let directory =
            tempfile::Builder::new().prefix("flotilla-e2e-").permissions(open_to_all()).tempdir().unwrap();
        let repositories = directory.path().join("repositories");
        std::fs::create_dir_all(&repositories).unwrap();
        let config = directory.path().join("flotilla.toml");
        std::fs::write(&config, parts::provider_config(options.model_url.as_deref().unwrap_or(&model.url)))
            .unwrap();
        let port = parts::free_port().await;
        let mut settings = Settings {
            app_url: String::new(),
            system_url: String::new(),
            redis_url: options
                .redis_url
                .or_else(|| nowhere("redis"))
                .unwrap_or_else(|| servers.redis_url.clone()),
            nats_url: options
                .nats_url
                .or_else(|| nowhere("nats"))
                .unwrap_or_else(|| servers.nats_url.clone()),
            namespace: testkit::namespace(),
            sandbox_url: format!("http://127.0.0.1:{port}"),
            slots: options.slots,
            request_wait_ms: options.request_wait_ms,
            config,
            data: directory.path().join("sandbox"),
            repositories: repositories.clone(),
            // Sandboxes of tests that run side by side share no user.
            uid_base: 1_000_000 + std::process::id() % 10_000 * 1_000,
        };
        let sandbox = async { if options.sandbox { Some(Running::sandbox(&settings).await) } else { None } };
        // The sandbox tests its isolation while Postgres copies the database.
        let (database, sandbox) = tokio::join!(testkit::database(), sandbox);
        let own = (database.app_url.clone(), database.system_url.clone());
        (settings.app_url, settings.system_url) = options.database_urls.unwrap_or(own);
        let workers = (1..=options.workers).map(|number| Running::worker(&settings, number));
        let (gateway, workers) =
            tokio::join!(Running::gateway(&settings), futures::future::join_all(workers));
        let api = Api::new_tenant(&gateway.url, "acme").await;
        Self {
            api,
            model,
            database,
            repositories,
            gateway,
            workers,
            sandbox,
            settings,
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

    /// Where the gateway answers.
    pub fn gateway_url(&self) -> &str {
        &self.gateway.url
    }

    /// Connects to Redis and NATS as the services do.
    pub async fn bus(&self) -> bus::Bus {
        let settings = &self.settings;
        bus::Bus::connect(&settings.nats_url, &settings.redis_url, &settings.namespace).await.expect("a bus")
    }

    /// Starts one more worker.
    pub async fn add_worker(&mut self) {
        let number = self.workers.len() + 1;
        self.workers.push(Running::worker(&self.settings, number).await);
    }

    /// Ends a worker as a crash would: its loops stop at once, nothing is handed over, its lease runs out.
    pub fn crash_worker(&mut self, index: usize) {
        drop(self.workers.remove(index));
    }

    /// Asks a worker to stop, and waits until it has handed everything over.
    pub async fn drain_worker(&mut self, index: usize) {
        self.workers.remove(index).stopped().await;
    }

    /// Ends the sandbox service.
    pub async fn stop_sandbox(&mut self) {
        self.sandbox.take().expect("a sandbox").stopped().await;
    }

    /// Starts the sandbox service again, at the same address with the same data.
    pub async fn start_sandbox(&mut self) {
        self.sandbox = Some(Running::sandbox(&self.settings).await);
    }

    /// Makes a session with an empty workspace.
    pub async fn session(&self) -> String {
        self.api.session(None).await
    }

    /// Makes a session whose files are those of `repository`.
    pub async fn session_on(&self, repository: &testkit::git::Repository) -> String {
        let bundle_id = self.api.upload(&repository.bundle()).await;
        let from = Some(v1::source::From::BundleId(bundle_id));
        self.api.session(Some(v1::Source { from, revision: String::new() })).await
    }
}

impl Running {
    async fn gateway(settings: &Settings) -> Self {
        let config = Gateway::parse_from(settings.gateway_arguments()).config;
        Self::start(|service| gateway::run(config, service)).await
    }

    async fn worker(settings: &Settings, number: usize) -> Self {
        let config = Worker::parse_from(settings.worker_arguments(number)).config;
        Self::start(|service| worker::run(config, service)).await
    }

    async fn sandbox(settings: &Settings) -> Self {
        let config = Sandbox::parse_from(settings.sandbox_arguments()).config;
        Self::start(|service| sandbox::run(config, service)).await
    }

    async fn start<F>(run: impl FnOnce(chassis::Service) -> F) -> Self
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
        running.url = tokio::select! {
            ready = ready.recv() => ready.expect("a service that is ready").url,
            ended = &mut running.task => panic!("a service ended before it was ready: {ended:?}"),
        };
        running
    }

    async fn stopped(mut self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(30), &mut self.task).await;
        ended.expect("a service ends when it is asked to").expect("no panic").expect("no error");
    }
}

/// Whether the suite runs without a server (`redis`, `nats`): FLOTILLA_TEST_WITHOUT names those that are away.
pub fn is_without(server: &str) -> bool {
    std::env::var("FLOTILLA_TEST_WITHOUT").is_ok_and(|away| away.split(',').any(|name| name == server))
}

/// Whether the current test must be skipped because one of the servers that it needs is away. Notes the reason.
pub fn is_left_out(needs: &[&str], why: &str) -> bool {
    let is_skipped = needs.iter().any(|server| is_without(server));
    if is_skipped {
        left_out::skip(why);
    }
    is_skipped
}

/// An address at which nobody answers, for a server that the suite runs without.
fn nowhere(server: &str) -> Option<String> {
    is_without(server).then(|| format!("{server}://127.0.0.1:9"))
}

/// With FLOTILLA_LOG set, shows what the services log: for looking into a failed test.
fn log_if_asked() {
    if let Ok(log_filter) = std::env::var("FLOTILLA_LOG") {
        let log_format = chassis::telemetry::LogFormat::Pretty;
        let config = chassis::telemetry::TelemetryConfig { log_format, log_filter, otlp_endpoint: None };
        // A second stack of a test finds the logs on already.
        drop(chassis::telemetry::start("e2e", &config));
    }
}

fn open_to_all() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}
