//! Wakes a session that has a new input. Both functions send hints; the sweeper finds the session without them.

use crate::{auth::principal::Account, state::State};
use bus::queue::QueueEntry;
use domain::{ids::SessionId, session::Class};

/// Tells workers that a session has an input.
pub(in crate::app) async fn wake(state: &State, account: Account, session: &SessionId, class: Class) {
    state.announce(QueueEntry { tenant: account.tenant, session, class, share: Some(account.share) }).await;
}

/// Like [`wake`], for an input that a running loop must see at once: an abort, an answer.
pub(in crate::app) async fn interrupt(state: &State, account: Account, session: &SessionId, class: Class) {
    state.bus.nudge(account.tenant, session);
    wake(state, account, session, class).await;
}
