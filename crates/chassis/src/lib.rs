//! Common parts of every service's `main`: telemetry, health and metrics, signals, tasks, readiness, clients.
//! The crate knows nothing about sessions and reads environment variables only through its clap structs.

pub mod admin;
pub mod backends;
pub mod error;
pub mod grpc;
pub mod http;
pub mod network;
pub mod port;
pub mod programs;
pub mod quotas;
pub mod ready;
pub mod secret;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;

use std::{
    future::Future,
    io::Write as _,
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Memory blocks from this size on are returned to the system when they are freed; bytes.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK_BYTES: libc::c_int = 1024 * 1024;
/// Time that tasks get to end after the service's body has ended. The body has drained its streams before.
const TASKS_JOIN: Duration = Duration::from_secs(1);

/// The handles through which a service reports its state to the process around it.
#[derive(Debug, Clone)]
pub struct Service {
    /// The service reports the state of its components here; `/readyz` shows it.
    pub health: admin::Health,
    /// Cancelled when the process must stop. The service then drains and returns.
    pub shutdown: CancellationToken,
    /// The service announces here that it answers, and its address.
    pub ready: ready::Sender,
    /// The service spawns its tasks here.
    pub tasks: tasks::Tasks,
}

impl Service {
    /// Returns the handles for a service inside another process (tests, `flotilla` without child processes), and the
    /// receiver that reports when it is ready.
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

/// Locks a mutex, also after a panic: for data that no code leaves inconsistent between two changes of it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body` as the whole work of this process and returns the exit code: 0 if the body returned `Ok`, else 1.
///
/// Sets up telemetry, the admin port and the signals first. SIGTERM and SIGINT cancel [`Service::shutdown`]; the
/// body then runs to its end. Its error is printed once, with its causes.
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
    return_large_blocks();
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
    // An error means that a provider is already installed, which is fine.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

/// Makes the allocator return every large block to the system when it is freed. By itself, glibc raises its threshold to the size of each
/// such block, up to 32 MiB, and then keeps the memory of later ones: some large requests would leave a service with hundreds of megabytes.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)] // No wrapper offers `mallopt`.
fn return_large_blocks() {
    // SAFETY: it stores a number in the allocator, whatever other threads do.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES) };
}

/// Other allocators return memory by themselves.
#[cfg(not(target_env = "gnu"))]
fn return_large_blocks() {}

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

    // Not ready until the service announces its address, and not ready again once it must stop.
    let (health, asked_to_stop) = (service.health.clone(), service.shutdown.clone());
    health.set("service", Err("starting".to_owned()));
    let _watch = tasks::spawn_owned("readiness", {
        let health = health.clone();
        async move {
            if ready.recv().await.is_ok() {
                health.set("service", Ok(()));
            }
            asked_to_stop.cancelled().await;
            health.set("service", Err("stopping".to_owned()));
        }
    });
    // The admin port outlives the body: a draining process still answers "not ready".
    let admin_stop = CancellationToken::new();
    let serve = admin::serve(listener, health, admin::recorder(), admin_stop.clone());
    let admin_task = tasks::spawn_owned("admin port", serve);

    let (shutdown, tasks) = (service.shutdown.clone(), service.tasks.clone());
    let result = Box::pin(body(service)).await;
    shutdown.cancel();
    let late = tasks.join_all(TASKS_JOIN).await;
    if !late.is_empty() {
        tracing::warn!("these tasks did not end within {} s: {}", TASKS_JOIN.as_secs(), late.join(", "));
    }
    admin_stop.cancel();
    drop(admin_task.await);
    result
}

/// Prints an error before logging is set up.
fn say(role: &str, error: &anyhow::Error) -> ExitCode {
    // If stderr is closed, the error cannot be shown.
    drop(writeln!(std::io::stderr(), "flotilla {role}: {error:#}"));
    ExitCode::FAILURE
}
