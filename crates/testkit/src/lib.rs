//! What tests need: real servers, a database for each test, a scripted model, repositories, sample values.
//! Only for tests: whatever cannot be had ends the test at once, with a sentence.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a broken set-up ends the test")]

pub mod database;
pub mod dump;
pub mod git;
pub mod model;
pub mod proxy;
pub mod ready_queue;
pub mod sample;

mod servers;
mod wait;

use std::future::Future;

/// Gives Postgres, Redis and NATS, shared by all tests of this workspace; Postgres does not wait for the disk.
///
/// The first call starts them (about half a second), later ones join them. They end by themselves some seconds after
/// the last test. Postgres' URL is a superuser's.
pub async fn servers() -> &'static local::shared::Shared {
    servers::get().await
}

/// Makes a migrated database for one test. It is dropped by a later test, once this process is gone.
pub async fn database() -> database::Database {
    database::create(database::Content::Migrated).await
}

/// Makes an empty database for one test of the migrations.
pub async fn empty_database() -> database::Database {
    database::create(database::Content::Empty).await
}

/// Gives a unique word for the Redis keys and NATS subjects of one test; letters and digits.
pub fn namespace() -> String {
    format!("t{}", uuid::Uuid::now_v7().simple())
}

/// Starts a scripted model with a script in TOML; see [`model_script`].
pub async fn model(script: &str) -> model::ScriptedModel {
    model::start(model_script::script::Script::parse(script).expect("a script")).await
}

/// Looks until `condition` holds, for what nothing announces. Panics after ten seconds, saying `what` did not happen.
pub async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl FnMut() -> F) {
    wait::eventually(what, condition).await;
}

/// Waits for `event`. Panics after ten seconds, saying `what` did not happen.
pub async fn within<T>(what: &str, event: impl Future<Output = T>) -> T {
    wait::within(what, event).await
}
