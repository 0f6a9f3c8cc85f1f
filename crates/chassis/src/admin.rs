//! The admin port: liveness, readiness and metrics of the process. Users must never reach it.

use crate::tasks;
use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Time between two passes that fold histogram samples. Without these passes memory grows until the next scrape.
const UPKEEP: Duration = Duration::from_secs(5);
/// Upper bounds of histograms whose name ends in `_ms`: from a cached read to a long model call. Milliseconds.
const BUCKETS_MS: [f64; 16] = [
    0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 15_000.0, 60_000.0,
    300_000.0,
];

/// The address of the admin port.
#[derive(Debug, Clone, clap::Args)]
pub struct AdminConfig {
    /// Address of the health and metrics port; port 0 picks a free one. Keep it unreachable for users.
    #[arg(long, env = "FLOTILLA_ADMIN_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub admin_listen: SocketAddr,
}

/// The state of a service's components. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<BTreeMap<&'static str, Component>>>);

/// The body of `/readyz`: `{"ready":false,"components":{"postgres":{"ok":false,"message":"connection refused"}}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Whether at least one component exists and every one that the service needs works.
    pub ready: bool,
    /// The components by name.
    pub components: BTreeMap<&'static str, Component>,
}

/// One component in a [`Snapshot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Component {
    pub ok: bool,
    /// What is wrong with it; empty if it works.
    pub message: String,
    /// Whether the service is ready without it: it then does part of its work, or works more slowly.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl Health {
    /// Sets the state of `component`, which the service needs, replacing the earlier one.
    pub fn set(&self, component: &'static str, state: Result<(), String>) {
        self.insert(component, Component::new(state));
    }

    /// Sets the state of `component`, without which the service is ready, replacing the earlier one.
    pub fn set_optional(&self, component: &'static str, state: Result<(), String>) {
        self.insert(component, Component { optional: true, ..Component::new(state) });
    }

    fn insert(&self, name: &'static str, component: Component) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, component);
    }

    /// Whether every component that the service needs works. False until the first component is set.
    pub fn is_ready(&self) -> bool {
        self.snapshot().ready
    }

    /// Returns the current state of all components.
    pub fn snapshot(&self) -> Snapshot {
        let components = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_ready = |component: &Component| component.ok || component.optional;
        Snapshot { ready: !components.is_empty() && components.values().all(is_ready), components }
    }
}

impl Component {
    fn new(state: Result<(), String>) -> Self {
        Self { ok: state.is_ok(), message: state.err().unwrap_or_default(), optional: false }
    }
}

/// Returns the process's metrics. The first call installs the recorder behind all `metrics` macros.
pub fn recorder() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let suffix = metrics_exporter_prometheus::Matcher::Suffix("_ms".to_owned());
            // This fails only for an empty list of bounds. Metrics then use summaries, which is acceptable.
            let builder = PrometheusBuilder::new()
                .set_buckets_for_metric(suffix, &BUCKETS_MS)
                .unwrap_or_else(|_| PrometheusBuilder::new());
            let recorder = builder.build_recorder();
            let handle = recorder.handle();
            if metrics::set_global_recorder(recorder).is_err() {
                tracing::warn!("another metrics recorder is already installed; /metrics stays empty");
            }
            handle
        })
        .clone()
}

/// Serves `/healthz`, `/readyz` and `/metrics` on `listener` until `shutdown`.
///
/// `GET /healthz`: 200 while the process lives. `GET /readyz`: 200 or 503 with a [`Snapshot`]. `GET /metrics`: Prometheus text.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    metrics: PrometheusHandle,
    shutdown: CancellationToken,
) {
    let render = metrics.clone();
    let routes = Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .with_state(health)
        .route(
            "/metrics",
            get(|| async move { ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], render.render()) }),
        );
    let _upkeep = tasks::spawn_owned("metrics", async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            tasks::catch_panic("metrics", async { metrics.run_upkeep() }).await;
        }
    });
    // Not graceful: a scraper that keeps its connection open must not delay the end of the process.
    tokio::select! {
        () = shutdown.cancelled() => {}
        result = axum::serve(listener, routes) => {
            if let Err(error) = result {
                tracing::error!("the admin port failed: {error}");
            }
        }
    }
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    let snapshot = health.snapshot();
    let status = if snapshot.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(snapshot))
}

#[cfg(test)]
mod tests;
