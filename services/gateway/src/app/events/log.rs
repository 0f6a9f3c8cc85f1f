//! The stored events of a session, page by page.

use crate::{
    app::ground::gateway::Gateway,
    auth::principal::Principal,
    ground::{error::Error, scope::Scope},
};
use domain::{
    event::StoredEvent,
    ids::{SessionId, TenantId},
};
use store::{
    Store,
    log::events::{LogPage, Pages},
};

/// The events after a position. The caller holds room for a page of them.
pub(crate) struct EventLog {
    store: Store,
    tenant: TenantId,
    session: SessionId,
    pages: Pages,
}

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
        let (store, tenant) = (gateway.state.store.clone(), principal.tenant(Scope::Read)?);
        store.get_head(tenant, session).await?;
        let pages = store.event_pages(tenant, session.clone(), after);
        Ok(Self { store, tenant, session: session.clone(), pages })
    }

    /// Reads the next page, oldest first; `None` at the end.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<StoredEvent>>, Error> {
        Ok(match self.pages.next().await? {
            None => None,
            Some(LogPage::Events(events)) => Some(events),
            Some(LogPage::Large(large)) => {
                let event = self.store.find_event(self.tenant, &self.session, large.seq).await?;
                Some(event.into_iter().collect())
            }
        })
    }
}
