//! The end of a workspace.

use crate::{
    error::{Error, blocking},
    helper::Task,
    isolation::launch::Mount,
    layout,
    session::{registry::Sessions, state::Session},
    tree::meta::{Meta, TREE},
};
use domain::{ids::TenantId, limits};
use std::{path::Path, sync::Arc, time::Duration};

const REMOVE_SCRIPT: &str = "cd /workspace && chmod -R u+rwX . 2>/dev/null; find . -mindepth 1 -delete";

/// Ends every process of a session and deletes its own workspace and the output of its execs. Every sandbox that sees
/// the workspace ends with it, including those of other sessions. A session without a workspace is not an error. The fence
/// stays: it keeps a late worker of the session out of a workspace that it shared.
///
/// # Errors
/// Those of the file system; the next call deletes the rest.
///
/// Dropped midway: the workspace is partly deleted, and no call can use it; the next call deletes the rest.
pub async fn run(session: &Session) -> Result<(), Error> {
    remove_if(session, Extent::Everything, |_| true).await
}

/// What is removed with the files of a workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Also the door of the session.
    Everything,
    /// The door stays, which the worker opened for the workspace that comes next.
    Files,
}

/// Does the same if the session has a workspace of an earlier opening than `opening`: an old copy that appeared again.
///
/// # Errors
/// Those of [`run`].
///
/// Dropped midway: as [`run`].
pub(super) async fn remove_older(session: &Session, opening: u32) -> Result<(), Error> {
    let is_older = |meta: Option<&Meta>| meta.is_some_and(|meta| meta.opening < opening);
    if !is_older(session.find_workspace().await?.as_ref()) {
        return Ok(());
    }
    tracing::warn!(session.id = %session.key.session, "an old copy of a workspace appeared again; it is removed");
    // Another call may have replaced it by now.
    remove_if(session, Extent::Files, is_older).await
}

/// Ends every sandbox that still sees files of the session which are gone, and removes an old copy of them from before `opening`. A new opening can
/// begin afterwards: no program of the earlier one is left to see what the door of the session leads to meanwhile.
///
/// # Errors
/// Those of the file system and of [`run`].
///
/// Dropped midway: some sandboxes go on; the next call ends them.
pub async fn end_leftovers(session: &Session, opening: Option<u32>) -> Result<(), Error> {
    if let Some(opening) = opening {
        remove_older(session, opening).await?;
    }
    // Held, so that no call makes the workspace and starts a sandbox in it meanwhile.
    let mut files = session.files.lock().await;
    if session.find_workspace().await?.is_none() {
        files.end_all().await;
    }
    Ok(())
}

async fn remove_if(
    session: &Session,
    extent: Extent,
    is_meant: impl FnOnce(Option<&Meta>) -> bool,
) -> Result<(), Error> {
    let shared = &session.shared;
    if extent == Extent::Everything {
        // A build uses the door of the session.
        shared.builds.end_of(&session.key).await;
    }
    let directory = shared.layout.workspace(&session.key);
    let mut current = session.current.lock().await;
    // Held to the end, so that no call can enter or make the workspace meanwhile.
    let mut files = session.files.lock().await;
    let meta = session.find_workspace().await?;
    if !is_meant(meta.as_ref()) {
        return Ok(());
    }
    Session::end_sandbox(&mut current).await;
    files.end_all().await;
    // Its user id is free when the files are gone.
    let _draft = files.draft.take();
    let mut known = session.snapshots.lock().await;
    known.forget();
    let tree = directory.join(TREE);
    if let Some(meta) = &meta
        && tree.is_dir()
    {
        // As the session's user: the service may lack permission for some directories, and paths may be deeper than it
        // can follow.
        let time_limit = Duration::from_millis(limits::WORKSPACE_HELPER_MS);
        let task = Task {
            script: REMOVE_SCRIPT,
            mounts: vec![Mount::write(&tree, "/workspace")],
            ..Task::new(session.key.tenant, shared.uid(meta.slot), time_limit)
        };
        let output = shared.helpers.run(task, 0).await?;
        if output.code != 0 {
            tracing::warn!("a workspace was not emptied from inside: {}", output.stderr);
        }
    }
    remove(&directory).await?;
    remove(&shared.layout.execs(&session.key)).await?;
    if let Some(door) = shared.doors.home(&session.key).filter(|_| extent == Extent::Everything) {
        remove(&door).await?;
    }
    if let Some(meta) = meta {
        shared.slots.free(meta.slot);
        let images = Arc::clone(&shared.images);
        blocking("release the image", move || {
            images.unpin(&meta.image);
            Ok(())
        })
        .await?;
    }
    drop((files, current));
    session.terminals.clear().await;
    Ok(())
}

/// Ends every process of a deleted tenant, and deletes all that the machine has of it. From now on every call for the tenant is refused.
///
/// # Errors
/// Those of the file system; the next call deletes the rest.
pub async fn run_for_tenant(sessions: &Arc<Sessions>, tenant: TenantId) -> Result<(), Error> {
    let registry = Arc::clone(sessions);
    for session in blocking("close the tenant", move || registry.close(tenant)).await? {
        run(&session).await?;
    }
    let layout = &sessions.shared.layout;
    let name = tenant.to_string();
    let own = [layout.workspaces(), layout.all_execs(), layout.fences(), layout.copies()]
        .map(|parent| parent.join(&name));
    for directory in own.into_iter().chain(sessions.shared.doors.of_tenant(tenant)) {
        remove(&directory).await?;
    }
    let builds = Arc::clone(&sessions.shared.builds);
    blocking("remove the environments of the tenant", move || builds.close_tenant(tenant)).await?;
    let mirrors = Arc::clone(&sessions.shared.mirrors);
    blocking("remove the mirrors of the tenant", move || mirrors.close_tenant(tenant)).await?;
    sessions.forget(tenant);
    Ok(())
}

async fn remove(directory: &Path) -> Result<(), Error> {
    let directory = directory.to_owned();
    blocking("remove the workspace", move || layout::remove_directory(&directory)).await
}
