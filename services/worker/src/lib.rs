//! The worker: claims sessions, runs their loops, calls models, has tools run in the sandbox, and records what happened.
//! It does not know what HTTP, a webhook or a batch is: all work comes from the mailbox of a session.

pub mod config;
pub mod question;

mod changes;
mod claim;
mod clean;
mod clock;
mod commands;
mod contention;
mod context;
mod conversation;
mod deps;
mod guidance;
mod lease;
mod lower;
mod model;
mod rebuild;
mod record;
mod rights;
mod sandbox;
mod snapshots;
mod structured;
mod tools;
mod turn;
mod workspace;

use anyhow::Context as _;
use config::Config;
use std::sync::Arc;

/// Runs a worker until `service.shutdown`, then hands its sessions over and returns.
///
/// # Errors
/// When the configuration cannot be used. Postgres, Redis, NATS or the sandbox being away is no error: the worker
/// waits for them, and says so in its health.
pub async fn run(config: Config, service: chassis::Service) -> anyhow::Result<()> {
    let providers = config.providers().context("read the configuration of the model providers")?;
    let deps = Arc::new(deps::Deps::connect(&config, providers).await?);
    let lease = lease::start(&config, &deps, service.clone())?;
    let admin_only = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    claim::wait_for_postgres(&deps, &service).await;
    service.ready.announce("worker", admin_only);
    claim::run(&config, Arc::clone(&deps), lease.clone(), &service).await;
    lease.stop().await;
    // A connection that hangs ends with the process.
    let patience = std::time::Duration::from_millis(domain::limits::LEASE_STOP_MS / 2);
    drop(tokio::time::timeout(patience, deps.store.close()).await);
    Ok(())
}
