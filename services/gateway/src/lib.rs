//! The gateway: all traffic in and out. It authenticates, accepts work, and forwards events; it runs nothing itself.
//!
//! Floors, from the top: `router`; the protocols `grpc` and `http`, which do not know each other; the use cases `app`; `streams` and
//! `auth`; `ground`. A module imports only from floors below it.

pub mod admin;
pub mod config;

mod app;
mod auth;
mod ground;
mod grpc;
mod health;
mod http;
mod router;
mod streams;

use anyhow::Context as _;
use app::ground::gateway::Gateway;
use auth::{client, keys::Keys};
use chassis::port::{self, Bounds};
use config::Config;
use ground::state::State;
use std::{sync::Arc, time::Duration};
use streams::{feed::Feeds, fleet};

/// Time for queries of cut calls to end. With [`port::CLOSING`], and a second each for its tasks and its last spans, a gateway ends
/// within 30 s.
const STORE_CLOSING: Duration = Duration::from_secs(5);

/// Runs a gateway until `service.shutdown`. Open calls end first; streams end with a request to resume elsewhere.
///
/// # Errors
/// If the configuration is invalid or the address is in use. While Postgres, Redis, NATS or the sandbox are down, the gateway
/// runs, and calls that need them answer UNAVAILABLE.
pub async fn run(config: Config, service: chassis::Service) -> anyhow::Result<()> {
    let state = State::connect(&config, service.shutdown.clone()).await?;
    let listener = tokio::net::TcpListener::bind(config.listen).await;
    let listener = listener.with_context(|| format!("listen at {}", config.listen))?;
    let address = listener.local_addr().context("read the address")?;
    let (reporter, grpc_health) = tonic_health::server::health_reporter();
    service.tasks.spawn("health", health::watch(state.clone(), service.clone(), reporter));
    let feeds = Feeds::default();
    let (watch, shutdown) = (fleet::watch(state.clone(), feeds.clone()), service.shutdown.clone());
    service.tasks.spawn("fleet", async move {
        shutdown.run_until_cancelled(watch).await;
    });
    let operator_key = config.operator_key.as_ref().map(|key| key.expose().as_str());
    let keys = Keys::new(state.store.clone(), operator_key);
    let (check, shutdown) =
        (Arc::clone(keys.live()).check_forever(state.store.clone()), service.shutdown.clone());
    service.tasks.spawn("keys", async move {
        shutdown.run_until_cancelled(check).await;
    });
    let (room, shutdown) = (Arc::clone(&state.room), service.shutdown.clone());
    service.tasks.spawn("readers", async move {
        shutdown.run_until_cancelled(room.cut_silent_readers()).await;
    });
    let gateway = Gateway::new(state.clone(), feeds, keys);
    let proxies = config.trusted_proxies.clone();
    let router = router::router(&gateway, grpc_health)?.layer(client::layer(config.trusted_proxies));
    service.ready.announce("gateway", address);
    let bounds = Bounds::of(port::afford(config.connections_max), proxies);
    port::serve(listener, router, bounds, service.shutdown.clone()).await;
    if tokio::time::timeout(STORE_CLOSING, state.store.close()).await.is_err() {
        tracing::warn!("some queries did not end in time");
    }
    Ok(())
}
