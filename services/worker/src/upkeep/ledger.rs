//! Removes old entries of the ledger and old lines of the audit.

use super::error::Error;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};

/// Entries of one transaction.
const BATCH_MAX: i64 = 10_000;
/// Transactions of one day. The next day continues.
const BATCHES_MAX: usize = 100;

pub(super) async fn forget_old(deps: &Deps) -> Result<(), Error> {
    let costs = in_batches(|| deps.store.forget_old_costs(BATCH_MAX)).await?;
    let lines = in_batches(|| deps.store.forget_audit(BATCH_MAX)).await?;
    if costs + lines > 0 {
        tracing::info!("removed {costs} old entries of the ledger and {lines} old lines of the audit");
    }
    Ok(())
}

/// Removes one batch after the other until nothing is left to remove. Returns how much it was.
async fn in_batches<F>(forget: impl Fn() -> F) -> Result<u64, Error>
where
    F: Future<Output = Result<u64, store::error::Error>>,
{
    let mut all = 0;
    for _ in 0..BATCHES_MAX {
        let removed = with_store_timeout(forget()).await?;
        all += removed;
        if removed == 0 {
            break;
        }
    }
    Ok(all)
}
