//! The worker: claims sessions, runs their loops, calls models, runs tools in the sandbox, and records the results. It also performs jobs, which are no conversations. It
//! does not know HTTP, webhooks or batches: all work comes from the mailbox of a session or of a job.

pub mod config;

mod calls;
mod claim;
mod conversation;
mod jobs;
mod lower;
mod model;
mod process;
mod record;
mod repository;
mod tools;
mod turn;
mod upkeep;

use anyhow::Context as _;
use chassis::backends::sandbox_check::{SandboxCheck, SandboxIds};
use claim::{lease, run};
use config::Config;
use process::deps::Deps;
use std::sync::Arc;
use store::{control::workers::Capabilities, schema::NewerSchema};
use tools::registry;

/// Runs a worker until `service.shutdown`, then hands over its sessions and returns.
///
/// # Errors
/// If the configuration is invalid, or the sandbox service is not the one that has the files of the sessions. If Postgres, Redis, NATS or the sandbox is down, the worker waits for it and reports that in
/// its health.
pub async fn run(config: Config, service: chassis::Service) -> anyhow::Result<()> {
    let providers = config.providers().context("read the configuration of the model providers")?;
    let deps = Arc::new(Deps::connect(&config, providers, service.tasks.clone()).await?);
    let offer = Capabilities { models: deps.providers.providers.facts(), tools: registry::all() };
    let admin_only = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let newer = NewerSchema::of(config.schema.accept_newer_schema);
    run::wait_for_postgres(&deps, newer, &service).await?;
    let sandbox = check_sandbox(&config, &deps, &service).await?;
    let lease = lease::start(&config, &deps, offer, service.clone())?;
    service.ready.announce("worker", admin_only);
    service.tasks.spawn("upkeep", upkeep::run::until(Arc::clone(&deps), service.shutdown.clone()));
    service.tasks.spawn("jobs", jobs::run::until(Arc::clone(&deps), lease.clone(), service.shutdown.clone()));
    run::run(&config, Arc::clone(&deps), lease.clone(), &service).await;
    lease.stop().await;
    // A connection that hangs ends with the process.
    let patience = std::time::Duration::from_millis(domain::limits::LEASE_STOP_MS / 2);
    drop(tokio::time::timeout(patience, deps.store.close()).await);
    Ok(sandbox.end()?)
}

/// Compares the sandbox service with the one that Postgres knows.
async fn check_sandbox(
    config: &Config,
    deps: &Arc<Deps>,
    service: &chassis::Service,
) -> Result<SandboxCheck, chassis::error::Error> {
    let (deps, replaces) = (Arc::clone(deps), config.backends.sandbox_replaces.clone());
    let compare = move || {
        let (deps, replaces) = (Arc::clone(&deps), replaces.clone());
        async move {
            let found = deps.sandbox.find_id().await?;
            let known = deps.store.note_sandbox(&found, replaces.as_deref()).await;
            let known =
                known.inspect_err(|error| tracing::debug!("cannot compare the sandbox: {error}")).ok()?;
            Some(SandboxIds { known, found })
        }
    };
    SandboxCheck::start(&config.backends.sandbox_url, service, compare).await
}
