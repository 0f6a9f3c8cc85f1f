//! Compares the sandbox with Postgres from time to time: files whose session does not exist are removed, and sessions whose files are lost are
//! counted. Mirrors of repositories go with their project. The sandbox only answers; it asks no other service.

use super::error::Error;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use domain::limits;
use rpc::v1;
use std::{collections::HashSet, time::Duration};
use store::control::{candidate::SessionRef, retention::ProjectRef, workspaces::StoredFiles};
use tonic::Status;

/// Files that were used within this time are left alone: their session may be about to be stored, or their deletion may be under way.
const IDLE_MIN: Duration = Duration::from_secs(60 * 60);
/// Orders of one reconciliation. Thousands of files without a session mean that Postgres was restored from an old copy, or that the sandbox
/// belongs to another stack: an operator must have time to notice. The next one orders further ones.
const ORDERS_MAX: u64 = 100;
/// Sessions with files that are kept in memory, some 100 bytes each: a machine has at most 65,536 workspaces. Further ones are not
/// compared.
const OPENED_MAX: usize = 200_000;
/// Longest wait for one answer of the sandbox.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Findings {
    /// Files without a session whose removal was ordered.
    orphans: u64,
    /// Sessions whose files are lost.
    lost: Vec<SessionRef>,
}

/// Compares once.
pub(super) async fn reconcile(deps: &Deps) -> Result<(), Error> {
    report(&compare(deps).await?);
    drop_mirrors(deps).await
}

/// Removes the mirrors whose project was deleted. A mirror that is missing costs the next session a transfer, so a few too many do no harm.
async fn drop_mirrors(deps: &Deps) -> Result<(), Error> {
    let mut cursor = String::new();
    loop {
        let mut client = deps.sandbox.client();
        let page = with_answer_timeout(client.list_mirrors(v1::ListMirrorsRequest { cursor })).await?;
        let projects: Vec<_> = page.projects.iter().filter_map(project).collect();
        for ProjectRef { tenant, project } in
            with_store_timeout(deps.store.find_missing_projects(&projects)).await?
        {
            let request =
                v1::DropMirrorsRequest { tenant_id: tenant.to_string(), project_id: project.to_string() };
            with_answer_timeout(client.drop_mirrors(request)).await?;
        }
        cursor = page.next_cursor;
        if cursor.is_empty() {
            return Ok(());
        }
    }
}

fn report(findings: &Findings) {
    // A counter, and not a gauge: another worker reports the next comparison.
    metrics::counter!("flotilla_workspaces_lost_total").increment(findings.lost.len() as u64);
    metrics::counter!("flotilla_workspaces_orphaned_total").increment(findings.orphans);
    if findings.orphans >= ORDERS_MAX {
        tracing::error!(
            "more than {ORDERS_MAX} workspaces have no session; {ORDERS_MAX} of them are removed in each round: was Postgres restored from \
             an old copy, or does the sandbox belong to another stack?"
        );
    } else if findings.orphans > 0 {
        tracing::warn!("{} workspaces without a session are removed", findings.orphans);
    }
    if let Some(lost) = findings.lost.first() {
        let count = findings.lost.len();
        tracing::warn!(tenant.id = %lost.tenant, session.id = %lost.session, "the files of {count} sessions are lost, of this one among them");
    }
}

async fn compare(deps: &Deps) -> Result<Findings, Error> {
    // Read before the sandbox is asked: files are opened before that is recorded.
    let mut missing = opened_sessions(deps).await?;
    let (mut orphans, mut cursor) = (0, String::new());
    loop {
        let page = list_page(deps, cursor).await?;
        let mut idle = vec![];
        for stored in page.workspaces {
            let Some(owner) = owner(&stored) else { continue };
            if stored.has_files {
                missing.remove(&owner);
            }
            if Duration::from_millis(stored.idle_ms) >= IDLE_MIN {
                idle.push(StoredFiles { owner, epoch: stored.epoch });
            }
        }
        for files in idle.chunks(usize::try_from(ORDERS_MAX).unwrap_or(1)) {
            if orphans < ORDERS_MAX {
                orphans += with_store_timeout(deps.store.order_orphans(files)).await?;
            }
        }
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    // Some were deleted meanwhile, or a person decided to start them again.
    let missing: Vec<SessionRef> = missing.into_iter().collect();
    let mut lost = vec![];
    for some in missing.chunks(usize::try_from(limits::SWEEP_MAX).unwrap_or(1)) {
        lost.extend(with_store_timeout(deps.store.find_opened(some)).await?);
    }
    Ok(Findings { orphans, lost })
}

/// The sessions whose files were opened.
async fn opened_sessions(deps: &Deps) -> Result<HashSet<SessionRef>, Error> {
    let (mut opened, mut after) = (HashSet::new(), None);
    while opened.len() < OPENED_MAX {
        let page = with_store_timeout(deps.store.list_opened(after.as_ref(), limits::SWEEP_MAX)).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        opened.extend(page);
    }
    Ok(opened)
}

async fn list_page(deps: &Deps, cursor: String) -> Result<v1::ListWorkspacesResponse, Error> {
    let mut client = deps.sandbox.client();
    with_answer_timeout(client.list_workspaces(v1::ListWorkspacesRequest { cursor })).await
}

/// Waits for an answer of the sandbox.
async fn with_answer_timeout<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Error> {
    let late = || Err(Status::deadline_exceeded("the sandbox did not answer in time"));
    let answer = tokio::time::timeout(ANSWER_WAIT, call).await.unwrap_or_else(|_| late());
    answer.map(tonic::Response::into_inner).map_err(Error::Sandbox)
}

/// The project of an entry; `None` for one that this version cannot read.
fn project(mirrored: &v1::MirroredProject) -> Option<ProjectRef> {
    Some(ProjectRef { tenant: mirrored.tenant_id.parse().ok()?, project: mirrored.project_id.parse().ok()? })
}

/// The session of an entry; `None` for one that this version cannot read.
fn owner(stored: &v1::StoredWorkspace) -> Option<SessionRef> {
    Some(SessionRef { tenant: stored.tenant_id.parse().ok()?, session: stored.session_id.parse().ok()? })
}
