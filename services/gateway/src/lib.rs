//! The gateway: every way in and every way out. It authenticates, accepts work, and forwards events; it runs nothing.

pub mod admin;
pub mod config;

mod auth;
mod bodies;
mod events;
mod feed;
mod fleet;
mod grpc;
mod health;
mod history;
mod http;
mod hub;
mod intake;
mod messages;
mod notices;
mod pty;
mod router;
mod shared;
mod state;
mod waits;
mod workspace;

use anyhow::Context as _;
use auth::client;
use chassis::port::{self, Bounds};
use config::Config;

/// Runs a gateway until `service.shutdown`; open calls end first, streams are told to resume elsewhere.
///
/// # Errors
/// When the configuration cannot be used or the address is taken. Postgres, Redis, NATS or the sandbox being away is
/// no error: calls that need them answer UNAVAILABLE.
pub async fn run(config: Config, service: chassis::Service) -> anyhow::Result<()> {
    let state = state::State::connect(&config, service.shutdown.clone()).await?;
    let listener = tokio::net::TcpListener::bind(config.listen).await;
    let listener = listener.with_context(|| format!("listen at {}", config.listen))?;
    let address = listener.local_addr().context("read the address")?;
    let (reporter, grpc_health) = tonic_health::server::health_reporter();
    service.tasks.spawn("health", health::watch(state.clone(), service.clone(), reporter));
    let (watched, shutdown) = (fleet::watch(state.clone()), service.shutdown.clone());
    service.tasks.spawn("fleet", async move {
        shutdown.run_until_cancelled(watched).await;
    });
    let router = router::router(&state, grpc_health)?.layer(client::layer(config.trusted_proxies));
    service.ready.announce("gateway", address);
    let bounds = Bounds { connections: port::afford(config.connections_max), ..Bounds::default() };
    port::serve(listener, router, bounds, service.shutdown.clone()).await;
    state.store.close().await;
    Ok(())
}
