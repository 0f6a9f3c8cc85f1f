//! Removes bundles that nobody needs.

use super::error::Error;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};

/// Bundles of one transaction: each may have 256 MiB, and the statement must end in time. The next transaction takes further ones.
const BATCH_MAX: i64 = 4;
/// Transactions of one round. The next round continues.
const BATCHES_MAX: usize = 32;

/// Removes uploads that never ended, and bundles that nothing starts from.
pub(super) async fn forget_old(deps: &Deps) -> Result<(), Error> {
    let (mut uploads, mut bundles) = (0, 0);
    for _ in 0..BATCHES_MAX {
        let gone = with_store_timeout(deps.store.forget_uploads(BATCH_MAX)).await?;
        let pass = with_store_timeout(deps.store.forget_bundles(BATCH_MAX)).await?;
        (uploads, bundles) = (uploads + gone, bundles + pass.removed);
        if gone == 0 && pass.seen == 0 {
            break;
        }
    }
    if uploads + bundles > 0 {
        tracing::info!("removed {uploads} unfinished uploads and {bundles} bundles that nobody needs");
    }
    Ok(())
}
