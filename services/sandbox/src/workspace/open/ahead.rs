//! Clones the source of a workspace before the workspace is opened, and keeps the files for a while.

use super::{clone::ClonedFiles, spec::OpenSpec};
use crate::{
    error::{Error, blocking},
    isolation::launch::give_to,
    layout,
    session::{
        draft::Draft,
        slots::Slot,
        state::{Files, Session},
    },
    tree::{meta::TREE, source::Source, track::DIRECTORY},
    workspace::{close, snapshots::seed},
};
use rpc::v1::{self, ErrorCode};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// Clones the source of a workspace that does not exist yet, unless that was done; `None`: it exists. Opening it takes these files.
///
/// # Errors
/// Those of a clone.
///
/// It ends early when the caller has `left`. Dropped midway: the next call begins again, but must not do so before the last step has ended, so call it from
/// a task.
pub async fn run(
    session: &Arc<Session>,
    spec: &OpenSpec,
    left: &CancellationToken,
) -> Result<Option<v1::CloneSourceResponse>, Error> {
    let missing = || Error::refused(ErrorCode::ArgumentInvalid, "the call names no source");
    let source = spec.source.as_ref().ok_or_else(missing)?;
    spec.check_names()?;
    close::remove_older(session, spec.key.opening).await?;
    let mut files = session.files.lock().await;
    if session.find_workspace().await?.is_some() {
        return Ok(None);
    }
    session.disk.check_host()?;
    let draft = take_draft(session, &mut files, spec, source, left).await?;
    let (base_commit, configuration) = (draft.base_commit.clone(), Some(draft.configuration.clone()));
    files.draft = Some(draft);
    drop(files);
    expire(session);
    Ok(Some(v1::CloneSourceResponse { base_commit, configuration }))
}

/// Removes the files if no call opens the workspace in time.
pub(super) fn expire(session: &Arc<Session>) {
    let session = Arc::clone(session);
    let kept = Duration::from_millis(session.shared.config.draft_ms);
    session.shared.tasks.clone().spawn("draft expiry", async move {
        tokio::select! {
            () = session.shared.shutdown.cancelled() => return,
            () = tokio::time::sleep(kept) => {}
        }
        let mut files = session.files.lock().await;
        // A later call asked for them again.
        if files.draft.as_ref().is_none_or(|draft| draft.asked_at.elapsed() < kept) {
            return;
        }
        let build = build_directory(&session);
        let removed = blocking("remove cloned files", move || layout::remove_directory(&build)).await;
        match removed {
            Ok(()) => files.draft = None,
            Err(error) => tracing::warn!("cloned files that no session opened are not removed: {error}"),
        }
    });
}

/// The refusal of files that are not those that the caller saw.
pub(super) fn source_changed() -> Error {
    let text = "the source has another commit than before, or its files are gone; clone it again";
    Error::refused(ErrorCode::SourceChanged, text)
}

/// Takes the files that were cloned before, or clones them.
pub(super) async fn take_draft(
    session: &Arc<Session>,
    files: &mut Files,
    spec: &OpenSpec,
    source: &Source,
    left: &CancellationToken,
) -> Result<Draft, Error> {
    if let Some(draft) = files.draft.take().filter(|draft| draft.key == spec.key) {
        return Ok(Draft { asked_at: Instant::now(), ..draft });
    }
    if matches!(source, Source::Bundle(file) if !file.path().exists()) {
        // It was not received again, because it had been cloned.
        return Err(source_changed());
    }
    let (slot, build) = begin(session)?;
    let uid = session.shared.uid(slot.number());
    let cloned = spec.clone_of(source, session, &build, uid).run(left).await?;
    let has_linked_content = cloned.has_linked_content(&build);
    seed::prepare(session, uid, &build).await;
    let configuration = cloned.configuration(session, &build, uid).await?;
    let ClonedFiles { base_commit, base_is_ours, origin, .. } = cloned;
    let key = spec.key.clone();
    let asked_at = Instant::now();
    Ok(Draft { key, slot, base_commit, base_is_ours, origin, has_linked_content, configuration, asked_at })
}

/// The directory that becomes the workspace.
pub(super) fn build_directory(session: &Session) -> PathBuf {
    session.shared.layout.workspace(&session.key).join("build")
}

/// Makes the directory that becomes the workspace, and gives it to a user of its own.
pub(super) fn begin(session: &Session) -> Result<(Slot, PathBuf), Error> {
    let shared = &session.shared;
    let directory = shared.layout.workspace(&session.key);
    let slot = shared.take_slot(session.key.tenant)?;
    let build = build_directory(session);
    prepare(&directory, &build).map_err(Error::io("make the workspace's directory"))?;
    give_to(shared.launcher.facts(), shared.uid(slot.number()), &build)
        .map_err(Error::io("give the workspace to its user"))?;
    Ok((slot, build))
}

fn prepare(directory: &Path, build: &Path) -> std::io::Result<()> {
    directory.parent().map_or(Ok(()), layout::make_passage)?;
    layout::make_passage(directory)?;
    // An interrupted build may have left these; no tenant's program ran in them.
    for left in [build.to_owned(), directory.join(TREE), directory.join(DIRECTORY)] {
        layout::remove_directory(&left)?;
    }
    std::fs::create_dir(build)
}
