//! The gateway: all traffic in and out. It authenticates, accepts work, and forwards events; it runs nothing itself.
//!
//! Floors, from the top: `router`; the protocols `grpc`, `http` and `github`, which do not know each other; the use cases `app`; `streams`; `state`,
//! the handle of what every call shares; `auth`, `backends`, `memory` and `quotas`; `errors`. A module imports only from floors below it.

pub mod admin;
pub mod config;

mod app;
mod auth;
mod backends;
mod directory_project;
mod errors;
mod github;
mod grpc;
mod health;
mod http;
mod memory;
mod quotas;
mod router;
mod scope;
mod state;
mod streams;

use anyhow::Context as _;
use app::gateway::Gateway;
use auth::keys::Keys;
use chassis::{
    backends::sandbox_check::{SandboxCheck, SandboxIds},
    port::{self, Bounds},
};
use config::Config;
use futures::FutureExt as _;
use github::{inbox, sweep};
use state::State;
use std::{sync::Arc, time::Duration};
use store::schema::{self, NewerSchema};
use streams::{feed::Feeds, fleet};

/// Time for queries of cut calls to end. With [`port::CLOSING`], and a second each for its tasks and its last spans, a gateway ends
/// within 30 s.
const STORE_CLOSING: Duration = Duration::from_secs(5);

/// Runs a gateway until `service.shutdown`. Open calls end first; streams end with a request to resume elsewhere.
///
/// # Errors
/// If the configuration is invalid, the address is in use, or the sandbox service is not the one that has the files of the sessions. While Postgres, Redis,
/// NATS or the sandbox are down, the gateway runs, and calls that need them answer UNAVAILABLE.
pub async fn run(config: Config, service: chassis::Service) -> anyhow::Result<()> {
    let state = State::connect(&config, &service).await?;
    let newer = NewerSchema::of(config.schema.accept_newer_schema);
    match state.store.find_schema_problem(newer).await {
        Ok(None) => {}
        Ok(Some(problem)) => return Err(problem.into()),
        // Postgres is away, so nothing is known: the health looks again.
        Err(error) if error.is_transient() => {}
        Err(error) => return Err(error).context(schema::UNREADABLE),
    }
    let sandbox = check_sandbox(&config, &state, &service).await?;
    let certificate = config.certificate().context("prepare TLS")?;
    if certificate.is_none() && !config.listen.ip().is_loopback() {
        tracing::warn!(
            "the port has no TLS: keys can be read on the way, unless a balancer before the gateway has it (FLOTILLA_GATEWAY_TLS_CERTIFICATE)"
        );
    }
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let listener = tokio::net::TcpListener::bind(config.listen).await;
    let listener = listener.with_context(|| format!("listen at {}", config.listen))?;
    let address = listener.local_addr().context("read the address")?;
    let (reporter, grpc_health) = tonic_health::server::health_reporter();
    let feeds = Feeds::default();
    let operator_key = config.operator_key.as_ref().map(|key| key.expose().as_str());
    let keys = Keys::new(state.store.clone(), operator_key);
    let watch = health::Watch { state: state.clone(), service: service.clone(), newer, reporter };
    start_loops(&state, watch, &feeds, &keys);
    let gateway = Gateway::new(state.clone(), feeds, keys);
    for _ in 0..inbox::PROCESSED_MAX {
        let own = gateway.clone();
        state.tasks.spawn_loop("deliveries", move || inbox::run(own.clone()));
    }
    let (own, period) = (gateway.clone(), Duration::from_millis(config.missed_deliveries_ms));
    state.tasks.spawn_loop("missed deliveries", move || sweep::run(own.clone(), period));
    let proxies = config.trusted_proxies.clone();
    let routes = router::port(&gateway, grpc_health, config.trusted_proxies)?;
    service.ready.announce_url("gateway", format!("{scheme}://{address}"));
    let bounds = Bounds::of(port::afford(config.connections_max), proxies);
    port::serve(listener, certificate, routes, bounds, service.shutdown.clone()).await;
    if tokio::time::timeout(STORE_CLOSING, state.store.close()).await.is_err() {
        tracing::warn!("some queries did not end in time");
    }
    Ok(sandbox.end()?)
}

/// Compares the sandbox service with the one that Postgres knows.
async fn check_sandbox(
    config: &Config,
    state: &State,
    service: &chassis::Service,
) -> Result<SandboxCheck, chassis::error::Error> {
    let (state, replaces) = (state.clone(), config.backends.sandbox_replaces.clone());
    let compare = move || {
        let (state, replaces) = (state.clone(), replaces.clone());
        async move {
            let found = state.sandbox.find_id().await?;
            let known = state.store.note_sandbox(&found, replaces.as_deref()).await;
            let known =
                known.inspect_err(|error| tracing::debug!("cannot compare the sandbox: {error}")).ok()?;
            Some(SandboxIds { known, found })
        }
    };
    SandboxCheck::start(&config.backends.sandbox_url, service, compare).await
}

/// Starts the background loops. They end when the gateway stops.
fn start_loops(state: &State, watch: health::Watch, feeds: &Feeds, keys: &Keys) {
    let tasks = &state.tasks;
    tasks.spawn_loop("health", move || watch.clone().run());
    let own = (state.clone(), feeds.clone());
    tasks.spawn_loop("fleet", move || {
        let (state, feeds) = own.clone();
        let shutdown = state.shutdown.clone();
        shutdown.run_until_cancelled_owned(fleet::watch(state, feeds)).map(drop)
    });
    let own = (Arc::clone(&state.room), state.shutdown.clone());
    tasks.spawn_loop("readers", move || {
        let (room, shutdown) = own.clone();
        async move {
            shutdown.run_until_cancelled(room.cut_silent_readers()).await;
        }
    });
    let (live, store, shutdown) = (Arc::clone(keys.live()), state.store.clone(), state.shutdown.clone());
    tasks.spawn_loop("keys", move || {
        let check = Arc::clone(&live).check_forever(store.clone());
        shutdown.clone().run_until_cancelled_owned(check).map(drop)
    });
    let own = (Arc::clone(keys.refused()), state.store.clone(), state.shutdown.clone());
    tasks.spawn_loop("refused keys", move || {
        let (refused, store, shutdown) = own.clone();
        async move { refused.write_until(&store, &shutdown).await }
    });
}
