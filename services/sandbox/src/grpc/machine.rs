//! Calls about the whole machine: what it has of each session, and the end of a tenant.

use super::call::id;
use crate::{
    error::{Error, blocking},
    session::{
        inventory::{self, Inventory},
        registry::Sessions,
    },
    workspace::close,
};
use domain::ids::TenantId;
use rpc::v1::{self, ErrorCode};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Sessions of one page: some 100 KB. The next page has the others.
const PAGE_MAX: usize = 1_000;

/// Lists the sessions after a cursor.
pub(super) async fn list(sessions: &Sessions, cursor: String) -> Result<v1::ListWorkspacesResponse, Error> {
    let layout = sessions.shared.layout.clone();
    let list = move || inventory::list(&layout, &cursor, PAGE_MAX);
    let page = blocking("list the workspaces", list).await?;
    let last = page.last().filter(|_| page.len() == PAGE_MAX);
    let next_cursor = last.map(|last| inventory::cursor(&last.key)).unwrap_or_default();
    Ok(v1::ListWorkspacesResponse { workspaces: page.into_iter().map(to_wire).collect(), next_cursor })
}

fn to_wire(inventory: Inventory) -> v1::StoredWorkspace {
    v1::StoredWorkspace {
        tenant_id: inventory.key.tenant.to_string(),
        session_id: inventory.key.session.to_string(),
        has_files: inventory.has_files,
        idle_ms: u64::try_from(inventory.idle.as_millis()).unwrap_or(u64::MAX),
        epoch: inventory.epoch,
    }
}

/// Closes a tenant, in a task that ends although the caller leaves.
pub(super) async fn close(sessions: &Arc<Sessions>, tenant: &str) -> Result<(), Error> {
    let tenant: TenantId = id("tenant_id", tenant)?;
    let (sessions, (answer, closed)) = (Arc::clone(sessions), oneshot::channel());
    let tasks = sessions.shared.tasks.clone();
    tasks.spawn("close tenant", async move {
        let result = close::run_for_tenant(&sessions, tenant).await;
        // The caller may have disconnected.
        drop(answer.send(result));
    });
    let lost = || Error::refused(ErrorCode::Internal, "the call failed inside the sandbox service");
    closed.await.unwrap_or_else(|_| Err(lost()))
}
