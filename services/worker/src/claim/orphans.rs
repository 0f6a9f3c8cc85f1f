//! Orphans: sessions about which Postgres, Redis and this worker disagree, because a response was lost or Redis lost its data.
//! While this worker lives, only it can repair them.

use super::claimer::{Claimer, Key};
use crate::process::store_timeout::with_store_timeout;
use bus::queue::{QueueEntry, ReleaseTo};
use std::collections::{BTreeMap, BTreeSet};
use store::control::workers::OwnedSession;

/// The findings of one sweep in Redis. A session looks like an orphan for a moment between its claim and its loop, and between
/// its loop and its release. So only sessions that two consecutive sweeps find are repaired.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Held by this worker according to Redis, but without a loop here.
    released: BTreeSet<Key>,
    /// Run by this worker, but unknown to Redis.
    forgotten: BTreeSet<Key>,
}

/// Repairs what two sweeps found, and returns the findings for the next sweep.
pub(super) async fn repair(claimer: &Claimer, before: Orphans) -> Orphans {
    let owned = give_back_orphans(claimer).await;
    let Ok(held) = claimer.deps.bus.list_held(&claimer.deps.incarnation.to_string()).await else {
        return Orphans::default();
    };
    let held: BTreeSet<Key> = held.into_iter().map(|held| (held.tenant, held.session)).collect();
    let running = claimer.running_sessions();
    let released: BTreeSet<Key> = held.difference(&running).cloned().collect();
    for key in released.intersection(&before.released) {
        claimer.release(key, ReleaseTo::Rest).await;
    }
    let is_forgotten = |key: &&Key| running.contains(*key) && !held.contains(*key);
    let forgotten: BTreeSet<Key> = owned.keys().filter(is_forgotten).cloned().collect();
    for key in forgotten.intersection(&before.forgotten) {
        if let Some(owned_session) = owned.get(key) {
            adopt(claimer, owned_session).await;
        }
    }
    Orphans { released, forgotten }
}

/// Gives back the sessions that this worker owns in Postgres but does not run: a takeover or a hand-over whose commit was in
/// doubt, or a loop that could not reach Postgres for too long. Returns the sessions that the worker owns and runs.
async fn give_back_orphans(claimer: &Claimer) -> BTreeMap<Key, OwnedSession> {
    let mut owned = BTreeMap::new();
    let held = match with_store_timeout(claimer.deps.store.list_held(claimer.deps.incarnation)).await {
        Ok(held) => held,
        Err(error) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "cannot list the sessions of this worker"
            );
            return owned;
        }
    };
    for known in held {
        let key = (known.target.tenant, known.target.session.clone());
        let has_loop = claimer.is_running(&key);
        if has_loop {
            owned.insert(key, known);
            continue;
        }
        tracing::warn!(session.id = %key.1, known.epoch, "this worker held a session without a loop; giving it back");
        claimer.give_back(&key, known.epoch).await;
        claimer.release(&key, ReleaseTo::Front).await;
    }
    owned
}

/// Adds a session that runs here to Redis. Otherwise it would not count against any limit, and no tenant would be charged
/// for it.
async fn adopt(claimer: &Claimer, held: &OwnedSession) {
    let OwnedSession { target: place, class, .. } = held;
    let entry = QueueEntry { tenant: place.tenant, session: &place.session, class: *class, share: None };
    match claimer.deps.bus.adopt(entry, &claimer.deps.incarnation.to_string()).await {
        Ok(()) => {
            tracing::info!(session.id = %place.session, "Redis had lost a session that runs here; added it again");
        }
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot add a session to Redis");
        }
    }
}
