//! The broker: the one process that holds credentials of the outside, and the one door of sandboxes to it.
//!
//! `grpc` takes the calls of gateways and workers. `secrets` seals and opens secrets, `images` asks registries with them, and `egress` has the doors
//! through which sessions reach the hosts that their settings allow and read private repositories, and through which setups and installs get their secrets;
//! it also reads pages of the web. `push` brings what a session has made to such a repository. `forge` is the App of the deployment at its forge: it shows there what sessions
//! do, and opens repositories where a tenant has installed it. All of them reach the outside through `outside`.

pub mod config;
pub mod egress;
pub mod error;
pub mod forge;
pub mod images;
pub mod outside;
pub mod push;
pub mod secrets;

mod body;
mod caller;
mod cause;
mod credential;
mod directory;
mod grpc;

use anyhow::{Context as _, bail};
use chassis::{Service, grpc::internal_port};
use config::Config;
use egress::{
    doors::{self, Doors},
    git::{credential::GitCredentials, servers::GitServers},
};
use forge::github::{Github, GithubSettings};
use futures::TryFutureExt as _;
use grpc::{auth, forge::ForgeServer, server::Server};
use images::{patience::Patience, puller::Puller};
use outside::{names::Names, proxy::UpstreamProxy};
use push::pusher::{Pusher, Pushes};
use rpc::v1::{broker_service_server::BrokerServiceServer, forge_service_server::ForgeServiceServer};
use secrets::{
    keyring::Keyring,
    reseal,
    vault::{Vault, VaultError},
};
use std::{fs::File, sync::Arc, time::Duration};
use store::{
    broker::BrokerStore,
    schema::{NewerSchema, UNREADABLE},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::interceptor::InterceptedService;
use tonic_health::{ServingStatus, server::HealthReporter};

/// How long calls and queries may take to end when the service stops.
const STOP: Duration = Duration::from_secs(4);
/// Time between two checks of Postgres.
const POLL: Duration = Duration::from_secs(2);
/// Calls of one connection at the same time. Further ones wait.
const CALLS_MAX: usize = 64;
/// Bytes of one call: the value of a secret and its names, or the lists of a door. A longer call gets a status without a code; gateways send none.
const CALL_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a call with a delivery of the forge, and its envelope. GitHub sends 25 MiB at most, and gateways take less.
const DELIVERY_BYTES_MAX: usize = domain::limits::DELIVERY_BYTES_MAX + 64 * 1024;

/// Runs the broker until `service.shutdown`.
///
/// # Errors
/// When the settings are wrong, when a key cannot be used or is not one of the database, or when the port cannot be opened. A key service may be
/// away at the start if the database has noted its key. While Postgres is down at the start, the broker waits for it and reports that in its health;
/// later calls answer UNAVAILABLE meanwhile.
pub async fn run(config: Config, service: Service) -> anyhow::Result<()> {
    let (tokens, problems) = config.check();
    if !problems.is_empty() {
        bail!("invalid settings:\n{}", problems.join("\n"));
    }
    let certificate = config.port().certificate().context("prepare TLS")?;
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let upstream = config.upstream_proxy()?;
    let hosts = config.registry_hosts(upstream.clone()).context("use FLOTILLA_BROKER_REGISTRY_CA")?;
    let keys = config.keyring().context("use the key of this deployment")?;
    let store = BrokerStore::connect(config.database_url.expose(), config.connections)
        .context("use FLOTILLA_BROKER_DATABASE_URL")?;
    let newer = NewerSchema::of(config.schema.accept_newer_schema);
    if !wait_for_schema(&store, newer, &service).await? {
        return Ok(());
    }
    let Some(vault) = open(store.clone(), keys, &service).await? else { return Ok(()) };
    let puller = Puller::new(Arc::clone(&vault), hosts, Patience::default(), &service);
    let puller = puller.context("prepare the client of registries")?;

    let listener = TcpListener::bind(config.listen).await;
    let listener = listener.with_context(|| format!("listen on {}", config.listen))?;
    let address = listener.local_addr().context("read the port")?;
    let (reporter, health) = tonic_health::server::health_reporter();
    let own = (Arc::clone(&vault), service.clone());
    service.tasks.spawn_loop("health", move || {
        let (vault, service) = own.clone();
        watch(vault, service, reporter.clone())
    });
    let names = names(&config, upstream);
    let github = github(&config, &store, &names, &vault)?;
    let credentials = GitCredentials::new(Arc::clone(&vault), Arc::clone(&github));
    let servers = git_servers(&config, &names, credentials)?;
    let _lock = lock_doors(&config).await?;
    let doors = open_doors(&config, &store, &names, &servers, &service)?;
    let pushes = pushes(&config, &servers, &service).await?;
    let api =
        Server { vault: Arc::clone(&vault), doors: doors.clone(), puller, pushes, store: store.clone() };
    let api = BrokerServiceServer::new(api).max_decoding_message_size(CALL_BYTES_MAX);
    let forge = ForgeServiceServer::new(ForgeServer(github)).max_decoding_message_size(DELIVERY_BYTES_MAX);
    let server = internal_port::server()
        .concurrency_limit_per_connection(CALLS_MAX)
        .add_service(health)
        .add_service(InterceptedService::new(forge, auth::interceptor(tokens.clone())))
        .add_service(InterceptedService::new(api, auth::interceptor(tokens)));
    service.ready.announce_url("broker", format!("{scheme}://{address}"));
    let serving = internal_port::serve(server, listener, certificate, service.shutdown.clone());
    let result = until_stopped(serving, &service.shutdown).await;
    if let Some(doors) = doors {
        drop(tokio::time::timeout(STOP, doors.close(&store)).await);
    }
    drop(tokio::time::timeout(STOP, vault.close()).await);
    result.context("serve")
}

/// The look-ups of hosts.
fn names(config: &Config, upstream: Option<Arc<UpstreamProxy>>) -> Arc<Names> {
    let hosts = config.hosts.iter().map(|fixed| (fixed.host.clone(), fixed.address)).collect();
    Arc::new(Names::new(config.networks.clone(), hosts).through(upstream))
}

/// The App at GitHub.
fn github(
    config: &Config,
    store: &BrokerStore,
    names: &Arc<Names>,
    vault: &Arc<Vault>,
) -> anyhow::Result<Arc<Github>> {
    let authorities = config.git_authorities().context("use FLOTILLA_BROKER_GIT_CA")?;
    let write_gap = Duration::from_millis(config.forge_write_gap_ms);
    let settings = GithubSettings { authorities: &authorities, write_gap };
    let github = Github::new(store.clone(), Arc::clone(vault), Arc::clone(names), settings);
    Ok(Arc::new(github.context("prepare the client of GitHub")?))
}

/// The client of servers of git.
fn git_servers(
    config: &Config,
    names: &Arc<Names>,
    credentials: GitCredentials,
) -> anyhow::Result<Arc<GitServers>> {
    let authorities = config.git_authorities().context("use FLOTILLA_BROKER_GIT_CA")?;
    let servers = GitServers::new(credentials, Arc::clone(names), &authorities);
    Ok(Arc::new(servers.context("prepare the client of servers of git")?))
}

/// Prepares pushes, if this broker is to have any.
async fn pushes(config: &Config, servers: &Arc<GitServers>, service: &Service) -> anyhow::Result<Pushes> {
    let Some(directory) = &config.push else {
        return Ok(Err("the operator has not set FLOTILLA_BROKER_PUSH".to_owned()));
    };
    let pusher = Pusher::start(directory, &config.secret_files(), Arc::clone(servers), service).await;
    match pusher.context("use FLOTILLA_BROKER_PUSH") {
        Err(error) if config.push_optional => {
            let reason = format!("{error:#}");
            tracing::warn!("no session can be pushed: {reason}");
            Ok(Err(reason))
        }
        pusher => Ok(Ok(pusher?)),
    }
}

/// Locks the directory of the doors, if this broker has any.
async fn lock_doors(config: &Config) -> anyhow::Result<Option<File>> {
    let Some(directory) = &config.egress else { return Ok(None) };
    let lock = doors::lock(directory).await.context("use FLOTILLA_BROKER_EGRESS")?;
    Ok(Some(lock))
}

/// Opens the doors to the network, if this broker has any.
fn open_doors(
    config: &Config,
    store: &BrokerStore,
    names: &Arc<Names>,
    servers: &Arc<GitServers>,
    service: &Service,
) -> anyhow::Result<Option<Arc<Doors>>> {
    let Some(directory) = &config.egress else { return Ok(None) };
    let (names, servers) = (Arc::clone(names), Arc::clone(servers));
    let doors = Doors::start(directory, names, servers, &service.tasks, &service.shutdown);
    let doors = doors.context("use FLOTILLA_BROKER_EGRESS")?;
    let own = (Arc::clone(&doors), store.clone());
    service.tasks.spawn_loop("egress journal", move || {
        let (doors, store) = own.clone();
        async move { doors.store_accesses(&store).await }
    });
    Ok(Some(doors))
}

/// Waits for Postgres, and checks its schema. False: the process must stop before it answers.
async fn wait_for_schema(store: &BrokerStore, newer: NewerSchema, service: &Service) -> anyhow::Result<bool> {
    let ask = || store.find_schema_problem(newer).map_err(VaultError::Store);
    match until_answered(service, ask).await.context(UNREADABLE)? {
        Some(None) => Ok(true),
        Some(Some(problem)) => Err(problem.into()),
        None => Ok(false),
    }
}

/// Opens the vault, and seals in the background what older keys have sealed. Waits for Postgres; `None`: the process must stop before it answers.
async fn open(store: BrokerStore, keys: Keyring, service: &Service) -> anyhow::Result<Option<Arc<Vault>>> {
    let vault = Arc::new(Vault::new(store, keys));
    let checked = until_answered(service, || vault.check_keys()).await;
    let Some(has_older_keys) = checked.context("use the keys of this deployment")? else { return Ok(None) };
    if has_older_keys {
        let own = (Arc::clone(&vault), service.clone());
        service.tasks.spawn_loop("reseal", move || {
            let (vault, service) = own.clone();
            reseal::run(vault, service)
        });
    }
    Ok(Some(vault))
}

/// Asks again while Postgres does not answer. `None`: the process must stop before it answers.
///
/// # Errors
/// Those of `ask` for another reason.
async fn until_answered<T, F>(service: &Service, ask: impl Fn() -> F) -> Result<Option<T>, VaultError>
where
    F: Future<Output = Result<T, VaultError>>,
{
    while !service.shutdown.is_cancelled() {
        // Postgres or a key service may be slow to answer.
        let Some(answer) = service.shutdown.run_until_cancelled(ask()).await else { break };
        match answer {
            Err(VaultError::Store(error)) if error.is_transient() => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "Postgres does not answer; retrying");
                service.health.set("postgres", Err(error.to_string()));
            }
            answer => return answer.map(Some),
        }
        service.shutdown.run_until_cancelled(tokio::time::sleep(POLL)).await;
    }
    Ok(None)
}

/// Serves until the process must stop, and then for a moment more.
async fn until_stopped<E>(
    serving: impl Future<Output = Result<(), E>>,
    shutdown: &CancellationToken,
) -> Result<(), E> {
    tokio::pin!(serving);
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        result = &mut serving => return result,
    }
    tokio::time::timeout(STOP, serving).await.unwrap_or_else(|_| {
        tracing::warn!("some calls did not end in time");
        Ok(())
    })
}

/// Reports whether Postgres answers, until the service stops.
async fn watch(vault: Arc<Vault>, service: Service, reporter: HealthReporter) {
    while !service.shutdown.is_cancelled() {
        let postgres = vault.ping().await;
        let status = if postgres.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing };
        service.health.set("postgres", postgres.map_err(|error| error.to_string()));
        reporter.set_service_status("", status).await;
        service.shutdown.run_until_cancelled(tokio::time::sleep(POLL)).await;
    }
}
