//! The set of servers that all test processes of this workspace share.

use local::shared::Shared;
use std::path::{Path, PathBuf};
use tokio::sync::OnceCell;

/// Environment variable with the directory of the set's files. `./dev test` sets it to one in memory.
const DIRECTORY: &str = "FLOTILLA_TEST_SERVERS";
/// The directory without the variable, relative to this crate's directory.
const DEFAULT_DIRECTORY: &str = "../../target/testkit";

/// Held until the process ends: the set lives at least as long.
static SERVERS: OnceCell<Shared> = OnceCell::const_new();

pub(crate) async fn get() -> &'static Shared {
    SERVERS
        .get_or_init(|| async {
            match local::shared::join(&directory()).await {
                Ok(shared) => shared,
                Err(error) => panic!("tests need Postgres, Redis and NATS: {error}"),
            }
        })
        .await
}

fn directory() -> PathBuf {
    match std::env::var_os(DIRECTORY) {
        Some(directory) => directory.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(DEFAULT_DIRECTORY),
    }
}
