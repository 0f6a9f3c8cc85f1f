//! The stored events of a session, page by page.

use crate::{app::gateway::Gateway, auth::principal::Principal, errors::error::Error, scope::Scope};
use domain::{event::StoredEvent, ids::SessionId};
use store::log::events::Pages;

/// The events after a position. The caller holds room for a page of them.
pub(crate) struct EventLog(Pages);

impl EventLog {
    /// Opens the log of a session after a position.
    ///
    /// # Errors
    /// `session_not_found`, `store_unavailable`.
    pub(crate) async fn open(
        gateway: &Gateway,
        principal: &Principal,
        session: &SessionId,
        after: u64,
    ) -> Result<Self, Error> {
        let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
        store.get_head(tenant, session).await?;
        Ok(Self(store.event_pages(tenant, session.clone(), after)))
    }

    /// Reads the next page, oldest first; `None` at the end.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<StoredEvent>>, Error> {
        Ok(self.0.next_whole().await?)
    }
}
