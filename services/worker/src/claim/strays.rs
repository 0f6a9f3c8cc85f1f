//! What Postgres, Redis and this worker disagree about: answers that were lost, and a Redis that forgot. Nobody else would
//! mend it while this worker lives.

use super::{Claimer, give_back};
use crate::record::answered;
use bus::queue::{QueueEntry, ReleaseTo};
use domain::{
    ids::SessionId,
    mutant::{self, Mutant},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::PoisonError,
};
use store::control::workers::OwnedSession;

/// What one sweep found in Redis. On its way from a claim to its loop, or from its loop to a release, a session looks the
/// same for a moment: only what two sweeps found is settled.
#[derive(Debug, Default)]
pub(super) struct Strays {
    /// Held by this worker, says Redis; and no loop runs here.
    released: BTreeSet<SessionId>,
    /// Run by this worker; and Redis does not know.
    forgotten: BTreeSet<SessionId>,
}

impl Claimer {
    /// Settles what differs, and gives what the next sweep compares with.
    pub(super) async fn settle_strays(&self, before: Strays) -> Strays {
        let owned = self.give_back_strays().await;
        let Ok(held) = self.deps.bus.list_held(&self.deps.incarnation.to_string()).await else {
            return Strays::default();
        };
        let held: BTreeSet<SessionId> = held.into_iter().collect();
        let running: BTreeSet<SessionId> = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .keys()
            .map(|(_, it)| it.clone())
            .collect();
        let released: BTreeSet<SessionId> = held.difference(&running).cloned().collect();
        for session in released.intersection(&before.released) {
            self.release(session, ReleaseTo::Rest).await;
        }
        let forgotten: BTreeSet<SessionId> = owned
            .keys()
            .filter(|session| running.contains(session) && !held.contains(session))
            .cloned()
            .collect();
        for session in forgotten.intersection(&before.forgotten) {
            if let Some(known) = owned.get(session) {
                self.adopt(known).await;
            }
        }
        Strays { released, forgotten }
    }

    /// Gives back what this worker owns by the row but does not run: a take-over or a hand-over whose commit was in
    /// doubt, or a loop that lost Postgres for too long. Gives what it owns and runs.
    async fn give_back_strays(&self) -> BTreeMap<SessionId, OwnedSession> {
        let mut owned = BTreeMap::new();
        let held = match answered(self.deps.store.list_held(self.deps.incarnation)).await {
            Ok(held) => held,
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no look at what is held");
                return owned;
            }
        };
        for known in held {
            let key = (known.target.tenant, known.target.session.clone());
            let runs = self.running.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&key);
            if runs || mutant::on(Mutant::StraysKept) {
                owned.insert(key.1, known);
                continue;
            }
            tracing::warn!(session.id = %key.1, known.epoch, "a session was held by no loop and is given back");
            give_back(&self.deps, key.0, &key.1, known.epoch).await;
            self.release(&key.1, ReleaseTo::Front).await;
        }
        owned
    }

    /// Tells Redis of a session that runs here: what it does not know of counts against no limit and is charged to nobody.
    async fn adopt(&self, held: &OwnedSession) {
        let OwnedSession { target: place, class, .. } = held;
        let entry = QueueEntry { tenant: place.tenant, session: &place.session, class: *class, share: None };
        match self.deps.bus.adopt(entry, &self.deps.incarnation.to_string()).await {
            Ok(()) => {
                tracing::info!(session.id = %place.session, "Redis had forgotten a session that runs here")
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "Redis was not told of a session");
            }
        }
    }
}
