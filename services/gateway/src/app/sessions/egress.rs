//! What a session reached of the network.

use crate::{
    app::{
        gateway::Gateway,
        page::{List, PageRequest},
    },
    auth::principal::Principal,
    errors::error::Error,
    scope::Scope,
};
use domain::ids::SessionId;
use rpc::v1::FlushEgressRequest;
use store::tenant::accesses::EgressEntry;

/// A page of what a session reached.
#[derive(Debug)]
pub(crate) struct EgressLog {
    pub(crate) list: List<EgressEntry>,
    /// Whether the broker did not store what it has gathered: the last seconds may be missing.
    pub(crate) newest_missing: bool,
}

/// Lists what a session reached, newest first. The sessions that use one workspace go through one door. The first page has everything until now, unless the
/// broker is away.
///
/// # Errors
/// `scope_missing`, `session_not_found`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    page: PageRequest,
) -> Result<EgressLog, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    let page = page.check(|cursor| cursor.parse::<i64>().is_ok())?;
    let owner = store.get_session(tenant, session).await?.workspace_id;
    let mut newest_missing = false;
    if page.cursor.is_none() {
        let request = FlushEgressRequest { tenant_id: tenant.to_string(), session_id: owner.to_string() };
        // The connection logs and counts a broker that does not answer. What is stored can still be read.
        newest_missing = gateway.state.broker.flush_egress(request).await.is_err();
    }
    let entries = store.list_egress(tenant, &owner, &page).await?;
    Ok(EgressLog { list: List::of(&page, entries, |entry| entry.cursor.clone()), newest_missing })
}
