//! What every service's `main` needs: telemetry, health and metrics, signals, tasks, readiness, clients.
//! It knows nothing of sessions and reads no environment variable outside the clap structs it offers.

pub mod admin;
pub mod backends;
pub mod grpc;
pub mod http;
pub mod port;
pub mod ready;
pub mod secret;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;
pub mod web;

use std::{future::Future, io::Write as _, path::PathBuf, process::ExitCode, time::Duration};
use tokio_util::sync::CancellationToken;

/// How long tasks may take to end after the body of a service has ended; the body drained its streams before.
const TASKS_JOIN: Duration = Duration::from_secs(1);

/// Why a process could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log filter is not one; the sentence names the bad directive.
    #[error("read the log filter {filter:?}")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The exporter for traces could not be built, usually because of its address.
    #[error("set up the export of traces to {endpoint}")]
    Export {
        /// Where traces should go.
        endpoint: String,
        /// What the exporter says.
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The address of a gRPC server cannot be used.
    #[error("use {url:?} as the address of a gRPC server")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        #[source]
        source: tonic::transport::Error,
    },
    /// An HTTP client could not be built.
    #[error("build an HTTP client")]
    HttpClient(#[source] reqwest::Error),
}

/// What a service gets from its `main`: the handles by which it tells the process around it how it is.
#[derive(Debug, Clone)]
pub struct Service {
    /// Where the service says which of its parts work; shown at `/readyz`.
    pub health: admin::Health,
    /// Cancelled when the process is asked to stop. The service then drains and returns.
    pub shutdown: CancellationToken,
    /// Where the service says that it answers, and at which address.
    pub ready: ready::Sender,
    /// Where the service spawns its tasks.
    pub tasks: tasks::Tasks,
}

impl Service {
    /// Gives the handles for a service inside another process (tests, `flotilla` without child processes),
    /// and the receiver that tells when it is ready.
    pub fn in_process() -> (Self, ready::Receiver) {
        let (ready, receiver) = ready::channel();
        let service = Self {
            health: admin::Health::default(),
            shutdown: CancellationToken::new(),
            ready,
            tasks: tasks::Tasks::default(),
        };
        (service, receiver)
    }
}

/// Runs `body` as the whole work of this process and gives its exit code: 0 when the body gave `Ok`, else 1.
///
/// Sets up telemetry, the admin port and the signals first. SIGTERM and SIGINT cancel [`Service::shutdown`]; the body
/// is then polled to its end. Its error is printed once, with its causes.
pub async fn run_main<Fut>(
    role: &'static str,
    telemetry: &telemetry::TelemetryConfig,
    admin: &admin::AdminConfig,
    ready_file: Option<PathBuf>,
    body: impl FnOnce(Service) -> Fut,
) -> ExitCode
where
    Fut: Future<Output = anyhow::Result<()>>,
{
    install_crypto();
    let telemetry = match telemetry::start(role, telemetry) {
        Ok(telemetry) => telemetry,
        Err(error) => return say(role, &anyhow::Error::new(error)),
    };
    let result = run_body(role, admin, ready_file, body).await;
    let code = match result {
        Ok(()) => {
            tracing::info!("{role} ended");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("{role} failed: {error:#}");
            ExitCode::FAILURE
        }
    };
    telemetry.shutdown().await;
    code
}

/// Makes aws-lc the process-wide TLS provider. Calling it again changes nothing.
pub fn install_crypto() {
    // An error says that a provider is installed already, which is what is wanted.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

async fn run_body<Fut>(
    role: &'static str,
    admin: &admin::AdminConfig,
    ready_file: Option<PathBuf>,
    body: impl FnOnce(Service) -> Fut,
) -> anyhow::Result<()>
where
    Fut: Future<Output = anyhow::Result<()>>,
{
    use anyhow::Context as _;

    let (mut service, mut ready) = Service::in_process();
    service.shutdown = shutdown::signals().context("listen for signals")?;
    let listener = tokio::net::TcpListener::bind(admin.admin_listen)
        .await
        .with_context(|| format!("listen on {} for health and metrics", admin.admin_listen))?;
    let admin_url = format!("http://{}", listener.local_addr().context("read the admin port's address")?);
    if let Some(file) = ready_file {
        service.ready = service.ready.with_file(file).context("prepare the ready file")?;
    }
    service.ready = service.ready.with_admin_url(admin_url.clone());
    tracing::info!(
        pid = std::process::id(),
        "{role} {} starts, admin port {admin_url}",
        env!("CARGO_PKG_VERSION")
    );

    // Not ready until the service announces its address, and no longer once it was asked to stop.
    let (health, asked_to_stop) = (service.health.clone(), service.shutdown.clone());
    health.set("service", Err("starting".to_owned()));
    let watch = tokio::spawn({
        let health = health.clone();
        async move {
            if ready.recv().await.is_ok() {
                health.set("service", Ok(()));
            }
            asked_to_stop.cancelled().await;
            health.set("service", Err("stopping".to_owned()));
        }
    });
    // The admin port outlives the body: a draining process still answers, with "not ready".
    let admin_stop = CancellationToken::new();
    let admin_task = tokio::spawn(admin::serve(listener, health, admin::recorder(), admin_stop.clone()));

    let (shutdown, tasks) = (service.shutdown.clone(), service.tasks.clone());
    let result = Box::pin(body(service)).await;
    shutdown.cancel();
    let late = tasks.join_all(TASKS_JOIN).await;
    if !late.is_empty() {
        tracing::warn!("these tasks did not end within {} s: {}", TASKS_JOIN.as_secs(), late.join(", "));
    }
    watch.abort();
    admin_stop.cancel();
    drop(admin_task.await);
    result
}

/// Prints an error where no log exists yet.
fn say(role: &str, error: &anyhow::Error) -> ExitCode {
    // A closed stderr leaves nobody to tell.
    drop(writeln!(std::io::stderr(), "flotilla {role}: {error:#}"));
    ExitCode::FAILURE
}
