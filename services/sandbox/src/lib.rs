//! The sandbox service: workspaces, and the commands and file operations in them, each session behind its own walls.
//! Its only credentials are the tokens of its callers, and it calls no other service of Flotilla.
//!
//! A session has one sandbox while it needs one. The sandbox ends after a minute without a running exec or a call, and
//! the background processes that its commands left end with it. The workspace stays, and the next call starts another
//! sandbox. Sessions of one tenant may work in the same workspace, each in its own sandbox behind its own fence.
//!
//! Read on in `grpc` (what a call does), `session` (what a session has) and `isolation` (how the walls are built). What
//! runs inside is the crate `sandbox-init`.

pub mod code;
pub mod config;
pub mod disk;
pub mod error;
pub mod exec;
pub mod grpc;
pub mod helper;
pub mod image;
pub mod isolation;
pub mod layout;
pub mod mirror;
pub mod programs;
pub mod running;
pub mod sandbox;
pub mod selftest;
pub mod session;
pub mod startup;
pub mod terminal;
pub mod tree;
pub mod user_ids;
pub mod walls;
pub mod workspace;

use anyhow::{Context as _, bail};
use chassis::{
    Service,
    grpc::internal_port,
    shutdown::predecessor::{self, PREDECESSOR_WAIT},
};
use config::Config;
use grpc::{auth::Authorized, server::Server as GrpcServer};
use isolation::{
    facts::Facts,
    launch::{Directories, Launcher},
    policy::User,
    priority, processes,
};
use layout::Layout;
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use rpc::v1::{
    self, sandbox_service_server::SandboxServiceServer, terminal_service_server::TerminalServiceServer,
};
use session::registry::Sessions;
use std::{fs::File, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use user_ids::{UserIds, UserIdsLock};
use walls::Wall;

/// How long calls and sandboxes may take to end when the service stops.
const STOP: Duration = Duration::from_secs(4);
/// Time between two sweeps of old fences, and of environment layers and mirrors without use.
const SWEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// Directories whose content means nothing after a restart.
const TRANSIENT: [&str; 6] =
    ["uploads", "scratch", "empty", "images/arrivals", "images/skeletons", "mirrors/drafts"];

/// Runs the service until `service.shutdown`: tests the isolation, serves, and at the end stops all sandboxes.
///
/// # Errors
/// When the settings are wrong, when something that the isolation requires is missing (it then never serves; the text
/// says what and how to mend it), or when the port cannot be opened.
pub async fn run(config: Config, service: Service) -> anyhow::Result<()> {
    let (tokens, problems) = config.check();
    if !problems.is_empty() {
        bail!("invalid settings:\n{}", problems.join("\n"));
    }
    let certificate = config.port().certificate().context("prepare TLS")?;
    let layout = Layout::create(&config.data_directory)
        .with_context(|| format!("make the data directory {}", config.data_directory.display()))?;
    let _lock = lock_directory(&layout).await?;
    for name in TRANSIENT {
        drop(std::fs::remove_dir_all(layout.root().join(name)));
    }
    for directory in [layout.arrivals(), layout.skeletons(), layout.mirror_drafts()] {
        layout::make_passage(&directory).with_context(|| format!("make {}", directory.display()))?;
    }
    let (_user_ids, user_ids) = reserve_users(&config, &layout).await?;
    let facts = Facts::find(&config, user_ids)?;
    let directories =
        Directories { etc: layout.etc(), libraries: layout.libraries(), copies: layout.copies() };
    let mut launcher =
        Launcher::start(facts, directories, service.tasks.clone()).context("prepare the launcher")?;
    let mut isolation = test_isolation(&mut launcher, &layout, &config.without, &service).await?;
    isolation.sandbox_id = layout.identify().context("read the id of the data directory")?;
    priority::watch(launcher.facts(), &service.tasks, service.shutdown.clone());

    let listener =
        TcpListener::bind(config.listen).await.with_context(|| format!("listen on {}", config.listen))?;
    let address = listener.local_addr().context("read the port")?;
    let shared = startup::load(config, launcher, layout, service.tasks.clone(), service.shutdown.clone())
        .context("load the workspaces")?;
    let sessions = Sessions::load(shared).context("load the deleted tenants")?;
    sessions.shared.disks.start(&service.tasks, service.health.clone(), &service.shutdown);
    let sessions = Arc::new(sessions);
    let (own, shutdown) = (Arc::clone(&sessions), service.shutdown.clone());
    service.tasks.spawn_loop("sweeps", move || sweep(Arc::clone(&own), shutdown.clone()));

    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<SandboxServiceServer<GrpcServer>>().await;
    let implementation = Arc::new(GrpcServer::new(Arc::clone(&sessions), isolation));
    let terminals = TerminalServiceServer::from_arc(Arc::clone(&implementation));
    let api = SandboxServiceServer::from_arc(implementation)
        .max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
        .max_encoding_message_size(rpc::MESSAGE_BYTES_MAX);
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let server = internal_port::server()
        .add_service(health)
        .add_service(Authorized::new(api, tokens.clone()))
        .add_service(Authorized::new(terminals, tokens));
    service.ready.announce_url("sandbox", format!("{scheme}://{address}"));
    let shutdown = service.shutdown.clone();
    let serving = internal_port::serve(server, listener, certificate, shutdown.clone());
    tokio::pin!(serving);
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        result = &mut serving => return result.context("serve"),
    }
    // Readers of execs end with their sandboxes. A call that does not end in time is abandoned.
    let drained = async { tokio::join!(serving, all_ended(&sessions)).0 };
    match tokio::time::timeout(STOP, drained).await {
        Ok(result) => result.context("serve"),
        Err(_) => {
            tracing::warn!("some calls or sandboxes did not end in time");
            Ok(())
        }
    }
}

/// Forgets old fences, and environment layers and mirrors that no session has used for long, at the start and then once a day.
async fn sweep(sessions: Arc<Sessions>, shutdown: CancellationToken) {
    let mut days = tokio::time::interval(SWEEP);
    while shutdown.run_until_cancelled(days.tick()).await.is_some() {
        let (sessions, builds) = (Arc::clone(&sessions), Arc::clone(&sessions.shared.builds));
        let mirrors = Arc::clone(&sessions.shared.mirrors);
        for swept in [
            error::blocking("remove old fences", move || sessions.forget_old_fences()).await,
            error::blocking("remove environments without use", move || builds.forget_unused()).await,
            error::blocking("remove mirrors without use", move || {
                mirrors.forget_unused();
                Ok(())
            })
            .await,
        ] {
            if let Err(error) = swept {
                tracing::warn!("{}; the next sweep tries again", error.chain());
            }
        }
    }
}

/// One service per directory: two services would give the same user id to different sessions.
async fn lock_directory(layout: &Layout) -> anyhow::Result<Flock<File>> {
    let path = layout.root().join("lock");
    let attempt = || match Flock::lock(File::create(&path)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EAGAIN)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    };
    let lock = predecessor::acquire(PREDECESSOR_WAIT, attempt).await;
    let lock = lock.with_context(|| format!("lock {}", path.display()))?;
    lock.with_context(|| format!("another sandbox service uses {}: stop it", layout.root().display()))
}

/// Takes the user ids of the sandboxes, and ends the processes of an earlier service that still have them.
async fn reserve_users(config: &Config, layout: &Layout) -> anyhow::Result<(Option<UserIdsLock>, UserIds)> {
    let (lock, ids) = match User::find() {
        User::PerSession => {
            let lock = UserIds::reserve(layout.root(), config.uid_base, config.uids).await?;
            let ids = lock.ids;
            (Some(lock), ids)
        }
        User::Service => (None, UserIds { first: nix::unistd::geteuid().as_raw(), count: 1 }),
    };
    let leftovers =
        processes::end_leftovers(layout.root(), ids).context("look for processes of an earlier service")?;
    if leftovers > 0 {
        tracing::warn!("ended {leftovers} processes that an earlier service of this directory left");
    }
    Ok((lock, ids))
}

async fn test_isolation(
    launcher: &mut Launcher,
    layout: &Layout,
    without: &[Wall],
    service: &Service,
) -> anyhow::Result<v1::GetIsolationResponse> {
    service.health.set("isolation", Err("the self-test runs".to_owned()));
    let report = selftest::run(launcher, &service.tasks, layout.root()).await;
    let report = match report {
        Ok(report) => {
            let problems: Vec<String> =
                report.missing.iter().cloned().chain(walls::refusal(&report.gaps, without)).collect();
            if !problems.is_empty() {
                let text = format!("the isolation is incomplete:\n{}", problems.join("\n"));
                service.health.set("isolation", Err(text.clone()));
                bail!("{text}");
            }
            report
        }
        Err(error) => {
            service.health.set("isolation", Err(format!("{error:#}")));
            return Err(error.context("test the isolation"));
        }
    };
    service.health.set("isolation", Ok(()));
    for gap in &report.gaps {
        tracing::warn!("a wall is missing, as the settings accept: {gap}");
    }
    if let Some(problem) = report.images_problem {
        tracing::warn!("this machine cannot run images: {problem}");
        launcher.refuse_images(problem);
    }
    let facts = launcher.facts();
    let properties: Vec<String> =
        report.properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let (backend, version) = match &facts.gvisor {
        None => ("bwrap", &facts.bwrap_version),
        Some(gvisor) => ("runsc", &gvisor.version),
    };
    tracing::info!("isolation by {backend} {version}: {}", properties.join(", "));
    Ok(v1::GetIsolationResponse {
        backend: backend.to_owned(),
        backend_version: version.clone(),
        properties: report.properties.into_iter().collect(),
        missing: report.gaps.iter().map(ToString::to_string).collect(),
        sandbox_id: String::new(),
    })
}

/// Returns when no sandbox of a session is left.
async fn all_ended(sessions: &Sessions) {
    sessions.shared.places.all_free().await;
}
