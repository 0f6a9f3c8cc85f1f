//! `flotilla gateway`, `worker`, `sandbox`, `broker` and `model-script`: one service in this process, with the common set-up of
//! all services.

use anyhow::{Context as _, Result, bail};
use chassis::{Service, admin::AdminConfig, telemetry::TelemetryConfig};
use nix::{
    sys::{prctl, signal::Signal},
    unistd::getppid,
};
use std::{future::Future, net::SocketAddr, path::PathBuf, process::ExitCode};

/// Settings of one service: its own, and the common ones.
#[derive(Debug, clap::Args)]
pub(crate) struct ServiceArgs<C: clap::Args> {
    #[command(flatten)]
    pub config: C,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The common settings of all services.
#[derive(Debug, clap::Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    telemetry: TelemetryConfig,
    #[command(flatten)]
    admin: AdminConfig,
    /// File to write when the service answers: `{"role":…,"pid":…,"url":…,"admin_url":…}`.
    #[arg(long, env = "FLOTILLA_READY_FILE", value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Process id of the launcher. This process ends when the launcher ends.
    #[arg(long, hide = true, value_name = "PID")]
    die_with: Option<i32>,
}

/// The scripted model server's settings.
#[derive(Debug, clap::Args)]
pub(crate) struct ModelScriptArgs {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, env = "FLOTILLA_MODEL_SCRIPT_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The script; default: the demo's.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

/// Runs `body` as the service `role`.
pub(crate) async fn run<Fut>(
    role: &'static str,
    common: CommonArgs,
    body: impl FnOnce(Service) -> Fut,
) -> Result<ExitCode>
where
    Fut: Future<Output = Result<()>>,
{
    if let Some(launcher) = common.die_with {
        // Exit at once, without draining: a killed launcher took the database with it.
        prctl::set_pdeathsig(Signal::SIGKILL).context("set the parent-death signal")?;
        // The launcher may already have died.
        if getppid().as_raw() != launcher {
            bail!("the launcher (process {launcher}) is gone");
        }
    }
    let CommonArgs { telemetry, admin, ready_file, .. } = common;
    Ok(chassis::run_main(role, &telemetry, &admin, ready_file, body).await)
}

/// Serves a scripted model until the process must stop.
pub(crate) async fn model_script(arguments: ModelScriptArgs, service: Service) -> Result<()> {
    use model_script::{script::Script, serve};

    let script = match &arguments.script {
        None => Script::demo().context("use the built-in script")?,
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            Script::parse(&text).with_context(|| format!("use {}", file.display()))?
        }
    };
    let listener = tokio::net::TcpListener::bind(arguments.listen).await;
    let listener = listener.with_context(|| format!("listen on {}", arguments.listen))?;
    service.ready.announce("model-script", listener.local_addr().context("read the port's address")?);
    let stop = async move { service.shutdown.cancelled().await };
    serve(listener, script, stop).await.context("serve the script")
}
