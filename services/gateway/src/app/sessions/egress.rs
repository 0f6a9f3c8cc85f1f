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

/// Lists what a session reached, newest first. Subtasks work with the files of their root session, and go through its door.
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
    let root = store.get_session(tenant, session).await?.root_id;
    let entries = store.list_egress(tenant, &root, &page).await?;
    Ok(List::of(&page, entries, |entry| entry.cursor.clone()))
}
