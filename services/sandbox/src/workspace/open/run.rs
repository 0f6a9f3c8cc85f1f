//! Makes a workspace. The service builds it next to its final place and then renames it, so callers find a whole workspace or none.

use super::{
    ahead::{begin, build_directory, source_changed, take_draft},
    spec::OpenSpec,
};
use crate::{
    disk::count::Measure,
    error::Error,
    image::digest::Digest,
    layout,
    session::{
        draft::Draft,
        state::{Files, Session},
    },
    tree::{
        empty,
        known::{Proof, Snapshot},
        meta::{Meta, TREE},
        source::{Source, Upload},
        track::DIRECTORY,
    },
    workspace::{
        close, configuration,
        install::take::{self, NewWorkspace},
    },
};
use rpc::v1::{self, ErrorCode};
use std::{sync::Arc, time::Instant};
use tokio_util::sync::CancellationToken;

/// What fills a new workspace.
struct Filled {
    draft: Draft,
    install: Option<Digest>,
    /// The snapshot of the files, if there is one already.
    snapshot: Option<Snapshot>,
    /// What they take on the disk, if it was measured.
    measure: Option<Measure>,
}

/// Makes the workspace of a session, unless it exists. Returns whether it made one, and what the workspace started
/// from.
///
/// # Errors
/// What git found: `repository_not_found`, `repository_needs_credentials`, `repository_unreachable`, `repository_unauthorized`, `secret_not_found`,
/// `git_unavailable`,
/// `revision_not_found`, `bundle_invalid`, `disk_full` (too large, or no space on the machine), `layers_missing`,
/// `environment_missing`, `images_unsupported`, `install_missing`, `source_changed`. There is then no workspace. A workspace of an
/// earlier opening is removed first.
///
/// It ends early when the caller has `left`: a clone may take minutes. Dropped midway: no workspace; the next call cleans up, but must not
/// begin before the last step has ended, so call it from a task.
pub async fn run(
    session: &Arc<Session>,
    spec: &OpenSpec,
    left: &CancellationToken,
) -> Result<(bool, Meta), Error> {
    spec.check_names()?;
    close::remove_older(session, spec.key.opening).await?;
    // The lock keeps other calls from starting a sandbox in the workspace or building it.
    let mut files = session.files.lock().await;
    if let Some(meta) = session.find_workspace().await? {
        return Ok((false, meta));
    }
    // From now on the door is that of the session's own programs.
    session.shared.builds.end_of(&session.key).await;
    session.disk.check_host()?;
    // An earlier workspace of the session may have been removed.
    session.disk.forget();
    let shared = &session.shared;
    let directory = shared.layout.workspace(&session.key);
    let build = build_directory(session);
    let pin = shared.images.pin(&spec.image)?;
    let Filled { draft, install, snapshot, measure } = match &spec.source {
        None => fill_empty(session, spec).await?,
        Some(source) => fill_from(session, &mut files, spec, source, left).await?,
    };
    let Draft { slot, base_commit, base_is_ours, origin, configuration, .. } = draft;
    let meta = Meta {
        base_commit,
        origin,
        base_is_ours,
        slot: slot.number(),
        opening: spec.key.opening,
        image: spec.image.clone(),
        env: spec.env.clone(),
        install,
        start: spec.start.clone(),
        options: spec.options,
        boot: shared.boot.clone(),
    };
    if !base_is_ours {
        configuration::keep(session, &configuration)?;
    }
    tokio::fs::rename(&build, directory.join(TREE))
        .await
        .map_err(Error::io("move the workspace into its place"))?;
    {
        let mut known = session.snapshots.lock().await;
        // An earlier workspace of the session may have vanished without being closed.
        known.forget();
        if let Some(snapshot) = snapshot {
            known.keep(snapshot, Proof { starts: files.starts_if_quiet(), fingerprint: None });
        }
    }
    if let Some(measure) = measure {
        session.disk.note_new(measure)?;
    }
    meta.write(&directory)?;
    slot.keep();
    pin.keep();
    Ok((true, meta))
}

/// Fills a workspace from its source, and adds what was installed.
async fn fill_from(
    session: &Arc<Session>,
    files: &mut Files,
    spec: &OpenSpec,
    source: &Source,
    left: &CancellationToken,
) -> Result<Filled, Error> {
    let draft = take_draft(session, files, spec, source, left).await?;
    if !spec.base_commit.is_empty() && spec.base_commit != draft.base_commit {
        files.draft = Some(draft);
        return Err(source_changed());
    }
    let mut filled = Filled { draft, install: None, snapshot: None, measure: None };
    if let Some(install) = &spec.install {
        let shared = &session.shared;
        let (image, env, uid) = (&spec.image, &spec.env, shared.uid(filled.draft.slot.number()));
        let build = &build_directory(session);
        match take::run(NewWorkspace { session, image, env, build, uid }, install).await {
            Ok(name) => filled.install = Some(name.key),
            Err(error) => {
                // It is found missing before anything is copied.
                files.draft = Some(filled.draft).filter(|_| error.code() == ErrorCode::InstallMissing);
                return Err(error);
            }
        }
    }
    Ok(filled)
}

async fn fill_empty(session: &Session, spec: &OpenSpec) -> Result<Filled, Error> {
    let shared = &session.shared;
    let (slot, build) = begin(session)?;
    let snapshots = shared.layout.workspace(&session.key).join(DIRECTORY);
    let (tenant, uid) = (session.key.tenant, shared.uid(slot.number()));
    let copy = empty::Copy { tenant, uid, tree: &build, snapshots };
    let empty::Original { base_commit, snapshot, measure } = shared.empty.copy(&shared.helpers, copy).await?;
    let draft = Draft {
        key: spec.key.clone(),
        slot,
        base_commit,
        base_is_ours: true,
        origin: String::new(),
        has_linked_content: false,
        configuration: v1::ConfigurationFiles::default(),
        asked_at: Instant::now(),
    };
    Ok(Filled { draft, install: None, snapshot: Some(snapshot), measure: Some(measure) })
}

/// Where an upload is kept until the workspace is made: not below the tree, readable by the session's user.
pub fn upload(session: &Session) -> Result<Upload, Error> {
    let directory = session.shared.layout.root().join("uploads");
    layout::make_passage(&directory).map_err(Error::io("make the directory of uploads"))?;
    Ok(Upload::to(directory.join(format!("{}.bundle", uuid::Uuid::now_v7().simple()))))
}
