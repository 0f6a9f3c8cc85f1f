//! The set of servers that all test processes of this workspace share.

use local::shared::Shared;
use std::path::Path;
use tokio::sync::OnceCell;

/// The directory of the set's files, relative to this crate's directory.
const DIR: &str = "../../target/testkit";

/// Held until the process ends: the set lives at least as long.
static SERVERS: OnceCell<Shared> = OnceCell::const_new();

pub(crate) async fn get() -> &'static Shared {
    SERVERS
        .get_or_init(|| async {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(DIR);
            match local::shared::join(&dir).await {
                Ok(shared) => shared,
                Err(error) => panic!("tests need Postgres, Redis and NATS: {error}"),
            }
        })
        .await
}
