//! The room that a request and its answer hold.

use axum::http::Extensions;
use shares::Permit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Room that the items of a stream hold until the reader has taken them. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct HeldRoom(#[expect(dead_code, reason = "held until it is dropped")] Arc<Permit>);

/// The room that a request and its answer take, until the last byte of the answer is sent or dropped. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct TakenRoom(Arc<Mutex<RoomShares>>);

#[derive(Debug, Default)]
struct RoomShares {
    until_answered: Vec<Permit>,
    /// That of items of a stream.
    lent: Vec<Weak<Permit>>,
}

impl TakenRoom {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Keeps a permit for as long as the request lasts.
    pub(crate) fn keep(&self, permit: Permit) {
        self.lock().until_answered.push(permit);
    }

    /// Hands out a permit that items of a stream hold.
    pub(super) fn lend(&self, permit: Permit) -> HeldRoom {
        let permit = Arc::new(permit);
        let mut shares = self.lock();
        shares.lent.retain(|permit| permit.strong_count() > 0);
        shares.lent.push(Arc::downgrade(&permit));
        HeldRoom(permit)
    }

    /// Gives the room back before the answer, because what took it is stored.
    pub(crate) fn give_back(&self) {
        self.lock().until_answered.clear();
    }

    pub(super) fn is_held(&self) -> bool {
        let shares = self.lock();
        !shares.until_answered.is_empty() || shares.lent.iter().any(|permit| permit.strong_count() > 0)
    }

    fn lock(&self) -> MutexGuard<'_, RoomShares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
