//! The gateway: every way in and every way out. It authenticates, accepts work, and forwards events; it runs nothing.

pub mod admin;
pub mod config;

mod auth;
mod events;
mod grpc;
mod health;
mod history;
mod intake;
mod router;
mod state;
mod waits;

use anyhow::Context as _;
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
    let router = router::router(&state, grpc_health)?;
    service.ready.announce("gateway", address);
    let stopped = service.shutdown.clone().cancelled_owned();
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small messages of a connection may be late");
        }
    });
    axum::serve(listener, router).with_graceful_shutdown(stopped).await.context("serve")?;
    state.store.close().await;
    Ok(())
}
