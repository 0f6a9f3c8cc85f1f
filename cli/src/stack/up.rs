//! `flotilla up`: the whole stack on one machine. Private servers, a tenant with a key, and the services as child
//! processes, which it supervises until it must stop.

mod background;
mod child;
mod port;
mod provider;
mod report;
mod service;
mod supervise;
mod waits;
mod walls;

use crate::{
    exit::Exit,
    stack::{
        contexts, private,
        running::{self, Stack},
    },
    terminal::output::{self, Output},
};
use anyhow::{Context as _, Result, bail};
use child::Child;
use gateway::admin::{Bootstrap, Key};
use provider::Models;
use serde::{Deserialize, Serialize};
use service::{Backends, CallerTokens, Spec, StackPaths};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use supervise::{CHANGES_MAX, Change, Process, supervise};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Time that all processes of `flotilla up` together have to end; milliseconds.
const UP_STOP_MS: u64 = 30_000;

/// Part of [`UP_STOP_MS`] that is reserved for Postgres, Redis and NATS.
const SERVERS_STOP: Duration = Duration::from_secs(8);
/// Longest wait for a service's clean end. It is much shorter than the time a worker gives its model calls and tools: no
/// other worker remains to take them over, and the next start continues from the stored state.
const SERVICE_STOP: Duration = Duration::from_secs(3);

/// `flotilla up`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// Number of worker processes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Name of the tenant to create.
    #[arg(long, default_value = "dev")]
    tenant: String,
    /// Address of the gateway; default: the last port of this data directory, else a free one, on this machine only.
    #[arg(long, env = "FLOTILLA_GATEWAY_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: std::net::SocketAddr,
    /// Script of the built-in model; default: the demo's. Only used when no provider is configured.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// The model providers; default: ./flotilla.toml, else ANTHROPIC_API_KEY, OPENAI_API_KEY and GEMINI_API_KEY.
    #[arg(long, env = "FLOTILLA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The key for `flotilla admin`; default: a random one, the same for every start in this data directory.
    #[arg(long, env = "FLOTILLA_OPERATOR_KEY", hide_env_values = true, value_name = "KEY")]
    operator_key: Option<chassis::secret::Secret<String>>,
    /// Walls that the sandbox may lack on this machine; `up` prints those that it does lack.
    #[arg(long, env = "FLOTILLA_SANDBOX_WITHOUT", default_value = walls::ACCEPTED, value_name = "WALLS")]
    sandbox_without: String,
    /// Start in the background: return when everything is ready. `flotilla down` stops it.
    #[arg(short, long)]
    detach: bool,
    /// Whether this is the process in the background.
    #[arg(long, hide = true, overrides_with = "detach")]
    background: bool,
    #[command(flatten)]
    telemetry: chassis::telemetry::TelemetryConfig,
}

/// `credentials.json`, mode 0600.
#[derive(Debug, Serialize, Deserialize)]
struct Credentials {
    tenant: String,
    tenant_id: String,
    api_key: String,
}

struct Running {
    servers: local::stack::Stack,
    /// In starting order.
    children: Vec<Child>,
    ready: Stack,
    data: PathBuf,
    /// Whether another process tells the person that it is ready.
    is_in_background: bool,
}

/// Starts everything, reports the addresses, and supervises the children until SIGTERM or SIGINT.
pub(crate) async fn run(arguments: UpArgs, output: &Output, data: Option<PathBuf>) -> Result<Exit> {
    let data = data.unwrap_or_else(|| PathBuf::from(running::DATA_DIR));
    fs::create_dir_all(&data).with_context(|| format!("make {}", data.display()))?;
    let data = data.canonicalize().context("find the data directory")?;
    if arguments.detach {
        return background::start(output, &data).await;
    }
    if arguments.background {
        // The terminal of the person may close.
        nix::unistd::setsid().context("leave the terminal")?;
    }
    let _lock = match local::lock::Lock::take(&data.join(running::LOCK_FILE)) {
        Err(local::error::Error::Busy { pid, .. }) => {
            let data = data.display();
            bail!("a stack already runs in {data}, as process {pid}; `flotilla down --data {data}` stops it")
        }
        other => other.context("lock the data directory")?,
    };
    chassis::install_crypto();
    let telemetry = chassis::telemetry::start("flotilla-up", &arguments.telemetry)?;
    let shutdown = chassis::shutdown::signals().context("listen for signals")?;
    let paths = StackPaths { data, program: std::env::current_exe().context("find this program")? };
    let mut children = Vec::new();
    // The servers take the longest to start, and these two services need none of them.
    let (servers, helpers) = tokio::join!(
        waits::note_long(
            "Postgres, Redis and NATS",
            local::stack::start(&paths.data, local::options::Options::default())
        ),
        unless_asked(&shutdown, start_helpers(&arguments, &paths, &mut children)),
    );
    let servers = match servers.context("start Postgres, Redis and NATS") {
        Ok(servers) => servers,
        Err(error) => {
            stop_children(children).await;
            return Err(error);
        }
    };
    let ready = match helpers {
        Ok(helpers) => {
            let begun = begin(&arguments, &paths, &servers, helpers, &mut children);
            unless_asked(&shutdown, Box::pin(begun)).await
        }
        Err(error) => Err(error),
    };
    let is_in_background = arguments.background;
    let mut running =
        Running { servers, children, ready: Stack::default(), data: paths.data, is_in_background };
    let result = match ready {
        Ok(ready) => {
            running.ready = ready;
            announce_and_watch(&mut running, output, &shutdown).await
        }
        Err(error) => Err(error),
    };
    output::note("stopping; a second Ctrl-C exits at once");
    let stopped = stop(running).await;
    telemetry.shutdown().await;
    match result {
        // A stop request during the start is not an error.
        Err(_) if shutdown.is_cancelled() => stopped.map(|()| Exit::Done),
        Err(error) => Err(error),
        Ok(()) => stopped.map(|()| Exit::Done),
    }
}

/// The services that need no Postgres, Redis or NATS.
struct Helpers {
    models: Models,
    sandbox_url: String,
    sandbox_tokens: CallerTokens,
}

/// Starts the sandbox, and the scripted model if no provider is configured. Started services are in `children` even
/// if another one fails.
async fn start_helpers(arguments: &UpArgs, paths: &StackPaths, children: &mut Vec<Child>) -> Result<Helpers> {
    let sandbox_tokens = CallerTokens {
        gateway: service::secret(&paths.data, service::SANDBOX_GATEWAY_TOKEN)?,
        worker: service::secret(&paths.data, service::SANDBOX_WORKER_TOKEN)?,
    };
    let sandbox = service::sandbox(paths, &sandbox_tokens, &arguments.sandbox_without);
    if let Some(models) = provider::find(arguments.config.as_deref())? {
        let sandbox_url = start_together(children, vec![sandbox]).await?.pop().unwrap_or_default();
        note_walls(&sandbox_url, &sandbox_tokens.worker).await;
        return Ok(Helpers { models, sandbox_url, sandbox_tokens });
    }
    let script =
        arguments.script.as_ref().map(|file| file.canonicalize().context("find the script")).transpose()?;
    let model = service::model(paths, script.as_deref());
    let mut addresses = start_together(children, vec![model, sandbox]).await?;
    let sandbox_url = addresses.pop().unwrap_or_default();
    note_walls(&sandbox_url, &sandbox_tokens.worker).await;
    let file = paths.data.join("scripted-model.toml");
    private::write(&file, &provider::scripted_config(&addresses.pop().unwrap_or_default()))?;
    let models = Models { names: vec![provider::SCRIPTED_MODEL.to_owned()], file: Some(file) };
    Ok(Helpers { models, sandbox_url, sandbox_tokens })
}

/// Tells the person which walls the sandbox lacks.
async fn note_walls(url: &str, token: &str) {
    match walls::note(url, token).await {
        Ok(note) => note.iter().for_each(|note| output::note(note)),
        Err(error) => output::note(&format!("{error:#}")),
    }
}

/// Starts broker, workers and gateway. Started services are in `children` even if another one fails.
async fn begin(
    arguments: &UpArgs,
    paths: &StackPaths,
    servers: &local::stack::Stack,
    helpers: Helpers,
    children: &mut Vec<Child>,
) -> Result<Stack> {
    let (bootstrap, api_key) = bootstrap(&paths.data, servers, &arguments.tenant).await?;
    let Helpers { models, sandbox_url, sandbox_tokens } = helpers;
    let broker_tokens = CallerTokens {
        gateway: service::secret(&paths.data, service::GATEWAY_TOKEN)?,
        worker: service::secret(&paths.data, service::WORKER_TOKEN)?,
    };
    let broker = service::broker(paths, &bootstrap.broker_url, &broker_tokens);
    let backends = Backends {
        app_url: bootstrap.app_url,
        system_url: bootstrap.system_url,
        redis_url: servers.redis_url.clone(),
        nats_url: servers.nats_url.clone(),
        sandbox_url,
        sandbox_tokens,
        broker_url: start_together(children, vec![broker]).await?.pop().unwrap_or_default(),
        broker_tokens,
    };
    let numbers = 1..=arguments.workers;
    let workers = numbers.map(|number| service::worker(paths, &backends, number, models.file.as_deref()));
    let operator_key = match &arguments.operator_key {
        Some(key) => key.expose().clone(),
        None => service::secret(&paths.data, service::OPERATOR_KEY)?,
    };
    let listen = port::choose(&paths.data, arguments.listen);
    let access = service::GatewayAccess { listen, operator_key: &operator_key };
    let gateway = service::gateway(paths, &backends, &access, &models.names);
    let mut addresses = start_together(children, workers.chain([gateway]).collect()).await?;
    let gateway_url = addresses.pop().unwrap_or_default();
    port::keep(&paths.data, &gateway_url)?;
    Ok(Stack {
        gateway_url,
        admin_urls: BTreeMap::new(),
        tenant: arguments.tenant.clone(),
        tenant_id: bootstrap.tenant_id,
        api_key,
        operator_key,
        pids: BTreeMap::new(),
        model: models.names.into_iter().next().unwrap_or_default(),
    })
}
/// Migrates the database and creates the tenant. Its key stays the same as long as the tenant exists; a new key is
/// stored in `credentials.json`.
async fn bootstrap(data: &Path, servers: &local::stack::Stack, tenant: &str) -> Result<(Bootstrap, String)> {
    let file = data.join("credentials.json");
    let old_credentials =
        fs::read(&file).ok().and_then(|json| serde_json::from_slice::<Credentials>(&json).ok());
    let key = match &old_credentials {
        Some(old_credentials) => Key::Keep { tenant_id: &old_credentials.tenant_id },
        None => Key::New,
    };
    let bootstrap = gateway::admin::bootstrap(&servers.postgres_url, tenant, key).await;
    let bootstrap = bootstrap.context("migrate the database and create the tenant")?;
    if let (None, Some(old_credentials)) = (&bootstrap.api_key, old_credentials) {
        return Ok((bootstrap, old_credentials.api_key));
    }
    let (tenant_id, api_key) = (bootstrap.tenant_id.clone(), bootstrap.api_key.clone().unwrap_or_default());
    let credentials = Credentials { tenant: tenant.to_owned(), tenant_id, api_key };
    private::write(&file, &serde_json::to_string(&credentials)?)?;
    Ok((bootstrap, credentials.api_key))
}

/// Starts services in parallel, waits until all are ready and returns their addresses.
async fn start_together(children: &mut Vec<Child>, specs: Vec<Spec>) -> Result<Vec<String>> {
    let first = children.len();
    for spec in specs {
        let name = spec.name.clone();
        children.push(Child::spawn(spec).await.with_context(|| format!("start {name}"))?);
    }
    futures::future::try_join_all(children.iter_mut().skip(first).map(Child::wait_ready)).await
}

/// Runs `work` until this process must stop.
async fn unless_asked<T>(shutdown: &CancellationToken, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        result = work => result,
        () = shutdown.cancelled() => bail!("asked to stop"),
    }
}

/// Reports that the stack is up, and restarts processes that end, until this process must stop.
async fn announce_and_watch(
    running: &mut Running,
    output: &Output,
    shutdown: &CancellationToken,
) -> Result<()> {
    let Running { servers, children, ready, data, is_in_background } = running;
    let file = data.join(running::READY_FILE);
    let servers = servers.servers_mut().iter_mut().map(Process::Server);
    let processes: Vec<_> = servers.chain(children.iter_mut().map(Process::Service)).collect();
    ready.pids.insert("up".to_owned(), std::process::id());
    for process in &processes {
        note(ready, process.state());
    }
    announce(ready, &file)?;
    let context = add_context(data);
    if !*is_in_background {
        report::print(output, ready, context.as_deref(), "Ctrl-C stops everything.")?;
    }
    let (sender, mut changes) = mpsc::channel(CHANGES_MAX);
    let supervised = processes.into_iter().map(|process| Box::pin(supervise(process, sender.clone())));
    let mut supervised = std::pin::pin!(futures::future::join_all(supervised));
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            Some(change) = changes.recv() => {
                note(ready, change);
                if let Err(error) = announce(ready, &file) {
                    output::note(&format!("{error:#}"));
                }
            }
            _ = supervised.as_mut() => return Ok(()),
        }
    }
}

/// Enters the state of a process into the description of the stack.
fn note(ready: &mut Stack, change: Change) {
    let Change { name, pid, admin_url } = change;
    ready.admin_urls.remove(&name);
    ready.admin_urls.extend(admin_url.map(|url| (name.clone(), url)));
    ready.pids.remove(&name);
    ready.pids.extend(pid.map(|pid| (name, pid)));
}

/// Writes `ready.json`.
fn announce(ready: &Stack, file: &Path) -> Result<()> {
    private::write(file, &serde_json::to_string(ready)?)
}

/// Adds a context for this stack, so that commands find it from any directory, and returns its name. The stack runs without one, too.
fn add_context(data: &Path) -> Option<String> {
    // A stack whose file cannot be read may run.
    let runs = |data: &Path| running::read(data).map_or(true, |stack| stack.is_some());
    let added = contexts::directory()
        .and_then(|directory| contexts::change(&directory, |contexts| contexts.set_stack(data, runs)));
    match added {
        Ok(name) => Some(name),
        Err(error) => {
            output::note(&format!("commands find this stack only in its own directory: {error:#}"));
            None
        }
    }
}

fn remove_context(data: &Path) {
    let removed = contexts::directory().and_then(|directory| {
        contexts::change(&directory, |contexts| {
            contexts.remove_stack(data);
            Ok(())
        })
    });
    if let Err(error) = removed {
        output::note(&format!("{error:#}"));
    }
}

/// Stops everything in reverse starting order, within 30 s.
async fn stop(running: Running) -> Result<()> {
    // Other commands must not find this stack any more.
    remove_context(&running.data);
    let file = running.data.join(running::READY_FILE);
    if let Err(error) = fs::remove_file(&file)
        && error.kind() != io::ErrorKind::NotFound
    {
        output::note(&format!("remove {}: {error}", file.display()));
    }
    stop_children(running.children).await;
    running.servers.stop().await.context("stop Postgres, Redis and NATS")
}

/// Stops the services in reverse starting order.
async fn stop_children(mut children: Vec<Child>) {
    let deadline = Instant::now() + Duration::from_millis(UP_STOP_MS).saturating_sub(SERVERS_STOP);
    while let Some(last) = children.pop() {
        let mut together = vec![last];
        // Workers do not depend on each other, so they end in parallel.
        while children.last().is_some_and(|child| child.role() == together[0].role()) {
            together.extend(children.pop());
        }
        let left = deadline.saturating_duration_since(Instant::now()).min(SERVICE_STOP);
        futures::future::join_all(together.iter_mut().map(|child| child.stop(left))).await;
    }
}
