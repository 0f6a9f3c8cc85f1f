//! Tools for tests: real servers, a database for each test, a scripted model, repositories, sample values.
//! Only for tests: a failed setup ends the test at once, with a sentence.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a broken set-up ends the test")]

pub mod database;
pub mod dump;
pub mod forge;
pub mod git;
pub mod git_server;
pub mod left_out;
pub mod model;
pub mod proxy;
pub mod ready_queue;
pub mod registry;
pub mod sample;
pub mod tls;
pub mod transit;
pub mod upstream_proxy;

mod ground;

use ground::{servers, wait};
use std::future::Future;

/// Returns Postgres, Redis and NATS, shared by all tests of this workspace. Postgres does not wait for the disk.
///
/// The first call starts the servers (about half a second), later calls join them. They end by themselves some
/// seconds after the last test. The Postgres URL is a superuser's.
pub async fn servers() -> &'static local::shared::Shared {
    servers::get().await
}

/// Creates a migrated database for one test. A later test drops it, once this process is gone.
pub async fn database() -> database::Database {
    database::create(database::Content::Migrated).await
}

/// Creates an empty database for one test of the migrations.
pub async fn empty_database() -> database::Database {
    database::create(database::Content::Empty).await
}

/// Returns a unique word for the Redis keys and NATS subjects of one test; letters and digits.
pub fn namespace() -> String {
    format!("t{}", uuid::Uuid::now_v7().simple())
}

/// Starts a scripted model with a script in TOML; see [`model_script`].
pub async fn model(script: &str) -> model::ScriptedModel {
    model::start(model_script::script::Script::parse(script).expect("a script")).await
}

/// Polls until `condition` holds, for conditions without a notification. Panics after ten seconds and names `what` did
/// not happen.
pub async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl FnMut() -> F) {
    wait::eventually(what, condition).await;
}

/// Waits for `event`. Panics after ten seconds and names `what` did not happen.
pub async fn within<T>(what: &str, event: impl Future<Output = T>) -> T {
    wait::within(what, event).await
}
