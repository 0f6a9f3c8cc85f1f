//! The room that a request and its answer hold.

use axum::http::Extensions;
use shares::Share;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Room that the items of a stream hold until the reader has taken them. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct HeldRoom(#[expect(dead_code, reason = "held until it is dropped")] Arc<Share>);

/// The room that a request and its answer take, until the last byte of the answer is sent or dropped. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct TakenRoom(Arc<Mutex<RoomShares>>);

#[derive(Debug, Default)]
struct RoomShares {
    until_answered: Vec<Share>,
    /// That of items of a stream.
    lent: Vec<Weak<Share>>,
}

impl TakenRoom {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Keeps a share for as long as the request lasts.
    pub(crate) fn keep(&self, share: Share) {
        self.lock().until_answered.push(share);
    }

    /// Hands out a share that items of a stream hold.
    pub(super) fn lend(&self, share: Share) -> HeldRoom {
        let share = Arc::new(share);
        let mut shares = self.lock();
        shares.lent.retain(|share| share.strong_count() > 0);
        shares.lent.push(Arc::downgrade(&share));
        HeldRoom(share)
    }

    /// Gives the room back before the answer, because what took it is stored.
    pub(crate) fn give_back(&self) {
        self.lock().until_answered.clear();
    }

    pub(super) fn is_held(&self) -> bool {
        let shares = self.lock();
        !shares.until_answered.is_empty() || shares.lent.iter().any(|share| share.strong_count() > 0)
    }

    fn lock(&self) -> MutexGuard<'_, RoomShares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
