//! `flotilla up`: the whole stack on one machine. Private servers, a tenant with a key, and the services as child
//! processes of this one, which watches them until it is asked to stop.

mod child;
mod provider;
mod report;
mod service;

use crate::{
    exit::Exit,
    out,
    stack::{self, Stack},
};
use anyhow::{Context as _, Result, bail};
use child::Child;
use domain::limits;
use provider::Models;
use serde::{Deserialize, Serialize};
use service::{Backends, Place, Spec};
use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// Part of [`limits::UP_STOP_MS`] that is kept for Postgres, Redis and NATS.
const SERVERS_STOP: Duration = Duration::from_secs(8);

/// `flotilla up`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Name of the tenant that is made.
    #[arg(long, default_value = "dev")]
    tenant: String,
    /// Address of the gateway; default: a free port on this machine only.
    #[arg(long, env = "FLOTILLA_GATEWAY_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: std::net::SocketAddr,
    /// Script of the built-in model; default: the demo's. Only used when no provider is configured.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// The model providers; default: ./flotilla.toml, else ANTHROPIC_API_KEY and OPENAI_API_KEY.
    #[arg(long, env = "FLOTILLA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
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

/// What runs.
struct Running {
    servers: local::stack::Stack,
    /// In starting order.
    children: Vec<Child>,
    ready: Stack,
    file: PathBuf,
    /// When each child was restarted lately, by name.
    restarts: BTreeMap<String, VecDeque<Instant>>,
}

/// Why watching ended.
enum Why {
    Asked,
    GaveUp(String),
}

/// Starts everything, tells where it is, and watches it until SIGTERM, SIGINT or a child that keeps failing.
pub(crate) async fn run(arguments: UpArgs, data: Option<PathBuf>) -> Result<Exit> {
    chassis::install_crypto();
    let telemetry = chassis::telemetry::start("flotilla-up", &arguments.telemetry)?;
    let shutdown = chassis::shutdown::signals().context("listen for signals")?;
    let data = data.unwrap_or_else(|| PathBuf::from(stack::DATA_DIR));
    fs::create_dir_all(&data).with_context(|| format!("make {}", data.display()))?;
    let data = data.canonicalize().context("find the data directory")?;
    let _lock = match local::lock::Lock::take(&data.join("up.lock")) {
        Err(local::Error::Busy { pid, .. }) => {
            bail!("a stack runs in {} already, as process {pid}; `kill {pid}` stops it", data.display())
        }
        other => other.context("take the data directory")?,
    };
    let servers =
        local::start(&data, local::Options::default()).await.context("start Postgres, Redis and NATS")?;
    let mut started = Vec::new();
    let begun = begin(&arguments, &data, &servers, &mut started, &shutdown).await;
    let (result, running) = match begun {
        Ok(ready) => {
            let file = data.join(stack::READY_FILE);
            let mut running = Running { servers, children: started, ready, file, restarts: BTreeMap::new() };
            (announce_and_watch(&mut running, &shutdown).await, running)
        }
        Err(error) => {
            let file = data.join(stack::READY_FILE);
            let ready = Stack::default();
            (Err(error), Running { servers, children: started, ready, file, restarts: BTreeMap::new() })
        }
    };
    out::note("stopping");
    let stopped = stop(running).await;
    telemetry.shutdown().await;
    match result {
        // Asked to stop before all was started: that is what was wanted.
        Err(_) if shutdown.is_cancelled() => stopped.map(|()| Exit::Done),
        Err(error) => Err(error),
        Ok(Why::Asked) => stopped.map(|()| Exit::Done),
        Ok(Why::GaveUp(sentence)) => bail!(sentence),
    }
}

/// Starts the services in order; what was started is in `children` even when a later one fails.
async fn begin(
    arguments: &UpArgs,
    data: &Path,
    servers: &local::stack::Stack,
    children: &mut Vec<Child>,
    shutdown: &CancellationToken,
) -> Result<Stack> {
    let start = async {
        let bootstrap = gateway::admin::bootstrap(&servers.postgres_url, &arguments.tenant);
        let bootstrap = Box::pin(bootstrap).await.context("migrate the database and create the tenant")?;
        let api_key = keep_key(data, &arguments.tenant, &bootstrap)?;
        let place =
            Place { data: data.to_owned(), program: std::env::current_exe().context("find this program")? };

        let models = match provider::find(arguments.config.as_deref())? {
            Some(models) => models,
            None => start_scripted(arguments, &place, children).await?,
        };
        let token = service::sandbox_token(data)?;
        let sandbox_url = start_one(children, service::sandbox(&place, &token)).await?;
        let backends = Backends {
            app_url: bootstrap.app_url,
            system_url: bootstrap.system_url,
            redis_url: servers.redis_url.clone(),
            nats_url: servers.nats_url.clone(),
            sandbox_url,
            sandbox_token: token,
        };
        for number in 1..=arguments.workers {
            start_one(children, service::worker(&place, &backends, number, models.file.as_deref())).await?;
        }
        let gateway = service::gateway(&place, &backends, arguments.listen, &models.names);
        let gateway_url = start_one(children, gateway).await?;
        Ok(Stack {
            gateway_url,
            admin_urls: BTreeMap::new(),
            tenant: arguments.tenant.clone(),
            tenant_id: bootstrap.tenant_id,
            api_key,
            pids: BTreeMap::new(),
            model: models.names.into_iter().next().unwrap_or_default(),
        })
    };
    tokio::select! {
        result = start => result,
        () = shutdown.cancelled() => bail!("asked to stop"),
    }
}

/// Starts the scripted model and gives the configuration that points to it.
async fn start_scripted(arguments: &UpArgs, place: &Place, children: &mut Vec<Child>) -> Result<Models> {
    let script =
        arguments.script.as_ref().map(|file| file.canonicalize().context("find the script")).transpose()?;
    let url = start_one(children, service::model(place, script.as_deref())).await?;
    let file = place.data.join("scripted-model.toml");
    write_private(&file, &provider::scripted_config(&url))?;
    Ok(Models { names: vec![provider::SCRIPTED_MODEL.to_owned()], file: Some(file) })
}

/// Gives the tenant's key of the first start as long as its tenant is there, and keeps a new one in `credentials.json`.
fn keep_key(data: &Path, tenant: &str, bootstrap: &gateway::admin::Bootstrap) -> Result<String> {
    let file = data.join("credentials.json");
    let kept = fs::read(&file).ok().and_then(|json| serde_json::from_slice::<Credentials>(&json).ok());
    if let Some(kept) = kept.filter(|kept| kept.tenant_id == bootstrap.tenant_id) {
        return Ok(kept.api_key);
    }
    let (tenant_id, api_key) = (bootstrap.tenant_id.clone(), bootstrap.api_key.clone());
    let credentials = Credentials { tenant: tenant.to_owned(), tenant_id, api_key };
    write_private(&file, &serde_json::to_string(&credentials)?)?;
    Ok(credentials.api_key)
}

/// Starts a service, waits until it is ready and gives its address.
async fn start_one(children: &mut Vec<Child>, spec: Spec) -> Result<String> {
    let name = spec.name.clone();
    children.push(Child::spawn(spec).await.with_context(|| format!("start {name}"))?);
    let Some(child) = children.last_mut() else { bail!("start {name}") };
    child.wait_ready().await
}

async fn announce_and_watch(running: &mut Running, shutdown: &CancellationToken) -> Result<Why> {
    running.announce()?;
    out::write(&report::welcome(&running.ready))?;
    out::line(&serde_json::to_string(&running.ready)?)?;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(Why::Asked),
            // Both waits are cancel-safe: a status that was not taken is there at the next wait.
            exit = running.servers.next_exit() => {
                out::note(&format!("{} ended ({}); the end of its log:\n{}", exit.role, exit.status, exit.log_tail));
                if !running.may_restart(exit.role) {
                    return Ok(Why::GaveUp(format!("{} keeps failing", exit.role)));
                }
                running.servers.restart(exit.role).await.with_context(|| format!("restart {}", exit.role))?;
            }
            (index, status) = child::next_exit(&mut running.children) => {
                let child = &running.children[index];
                let name = child.name().to_owned();
                out::note(&format!("{name} ended ({status}); the end of its log:\n{}", local::tail(child.log())));
                if !running.may_restart(&name) {
                    return Ok(Why::GaveUp(format!("{name} keeps failing; its log is {}", running.children[index].log().display())));
                }
                let restart = running.children[index].restart();
                let restarted = tokio::select! {
                    () = shutdown.cancelled() => return Ok(Why::Asked),
                    restarted = restart => restarted,
                };
                match restarted {
                    Ok(()) => out::note(&format!("{name} runs again")),
                    // It ended or hangs; the next round sees that.
                    Err(error) => out::note(&format!("{error:#}")),
                }
            }
        }
        running.announce()?;
    }
}

impl Running {
    /// Writes `ready.json` with the present process ids.
    fn announce(&mut self) -> Result<()> {
        let pids = self.servers.pids().into_iter().map(|(role, pid)| (role.to_owned(), pid));
        let own = ("up".to_owned(), std::process::id());
        let children = self.children.iter().filter_map(|child| Some((child.name().to_owned(), child.pid()?)));
        self.ready.pids = pids.chain([own]).chain(children).collect();
        let admin =
            self.children.iter().filter_map(|child| Some((child.name().to_owned(), child.admin_url()?)));
        self.ready.admin_urls = admin.collect();
        write_private(&self.file, &serde_json::to_string(&self.ready)?)
    }

    /// Whether `name` may be started again: not more than five times a minute.
    fn may_restart(&mut self, name: &str) -> bool {
        let times = self.restarts.entry(name.to_owned()).or_default();
        let now = Instant::now();
        times.retain(|time| now.duration_since(*time) < Duration::from_secs(60));
        times.push_back(now);
        times.len() <= limits::RESTARTS_PER_MINUTE_MAX
    }
}

/// Stops everything, the last started first, within 30 s.
async fn stop(mut running: Running) -> Result<()> {
    // From now on nobody should find this stack.
    if let Err(error) = fs::remove_file(&running.file)
        && error.kind() != io::ErrorKind::NotFound
    {
        out::note(&format!("remove {}: {error}", running.file.display()));
    }
    let deadline = Instant::now() + Duration::from_millis(limits::UP_STOP_MS).saturating_sub(SERVERS_STOP);
    while let Some(last) = running.children.pop() {
        let mut together = vec![last];
        // Workers do not need each other: they end side by side.
        while running.children.last().is_some_and(|child| child.role() == together[0].role()) {
            together.extend(running.children.pop());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        futures::future::join_all(together.iter_mut().map(|child| child.stop(left))).await;
    }
    running.servers.stop().await.context("stop Postgres, Redis and NATS")
}

/// Replaces `file` by one that only its owner can read.
fn write_private(file: &Path, content: &str) -> Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let beside = file.with_extension("tmp");
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut writer = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        writer.write_all(content.as_bytes())?;
        fs::rename(&beside, file)
    };
    write().with_context(|| format!("write {}", file.display()))
}
