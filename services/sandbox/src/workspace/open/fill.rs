//! Fills the mirror of a repository before a session needs it. The clone goes into a directory of its own, which is removed: no session gets these files.

use super::clone::GitClone;
use crate::{
    error::Error,
    mirror::key::MirrorKey,
    session::state::Session,
    tree::source::{LfsOrigins, Source},
    workspace::scratch::Scratch,
};
use domain::ids::ProjectId;
use tokio_util::sync::CancellationToken;

/// The repository of a mirror.
#[derive(Debug)]
pub struct MirrorSource {
    /// The project whose sessions have the mirror.
    pub project: ProjectId,
    pub source: Source,
}

/// Clones a repository whose mirror the machine lacks, and keeps what came. Returns whether it cloned. `door` has only the door
/// through which a private repository is read.
///
/// # Errors
/// Those of a clone; `helpers_busy`: the tenant or the machine fills others already; `disk_full`.
///
/// It ends early when the caller has `left`. Dropped midway: the files of the clone are removed by a task.
pub async fn run(door: &Session, of: &MirrorSource, left: &CancellationToken) -> Result<bool, Error> {
    let (shared, tenant) = (&door.shared, door.key.tenant);
    let MirrorSource { project, source } = of;
    let Some(key) = MirrorKey::of(tenant, project, source) else { return Ok(false) };
    if !shared.mirrors.wants(&key) {
        return Ok(false);
    }
    let _permit = shared.mirrors.begin_warm_up(tenant).await?;
    // The clone, and the copy for the mirror: sessions keep the reserve.
    door.disk.check_room(2 * shared.config.disk_bytes)?;
    // Held, so that the end of the tenant waits for this clone and removes what it kept.
    let _files = door.files.lock().await;
    if !shared.mirrors.wants(&key) {
        return Ok(false);
    }
    let slot = shared.take_slot(tenant)?;
    let uid = shared.uid(slot.number());
    let scratch = Scratch::make(door, uid)?;
    // Each session brings its own objects of Git LFS.
    let lfs = LfsOrigins::default();
    let clone = GitClone {
        session: door,
        source,
        lfs: &lfs,
        // A mirror has all branches.
        revision: "",
        branch: "",
        uncommitted: false,
        // Submodules have no mirrors.
        has_door: false,
        project: Some(project),
        build: scratch.path(),
        uid,
    };
    let cloned = clone.run(left).await;
    scratch.remove().await;
    if cloned.is_ok() && shared.mirrors.wants(&key) {
        // It cannot have a mirror, so another clone would be in vain.
        shared.mirrors.give_up(&key);
    }
    cloned.map(|_| true)
}
