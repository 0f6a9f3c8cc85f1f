//! What a session reached of the network.

use crate::{
    app::ground::{
        gateway::Gateway,
        page::{List, PageRequest},
    },
    auth::principal::Principal,
    ground::{error::Error, scope::Scope},
};
use domain::ids::SessionId;
use store::tenant::accesses::EgressEntry;

/// Lists what a session reached, newest first. The sessions that use one workspace go through one door.
///
/// # Errors
/// `scope_missing`, `session_not_found`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    page: PageRequest,
) -> Result<List<EgressEntry>, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    let page = page.check(|cursor| cursor.parse::<i64>().is_ok())?;
    let owner = store.get_session(tenant, session).await?.workspace_id;
    let entries = store.list_egress(tenant, &owner, &page).await?;
    Ok(List::of(&page, entries, |entry| entry.cursor.clone()))
}
