//! Makes a workspace. It is built beside its final place and then renamed, so there is a whole workspace or none.

mod clone;
mod submodules;

use super::{
    close, configuration, empty,
    install::{
        key::InstallSpec,
        take::{self, NewWorkspace},
    },
    meta::{Meta, TREE},
    snapshots::{
        known::{Proof, Snapshot},
        seed,
        track::DIRECTORY,
    },
    source::{self, Source, Upload},
};
use crate::{
    code::Code, disk::count::Measure, error::Error, image::manifest::Manifest, isolation::launch::give_to,
    layout, session::state::Session,
};
use clone::{ClonedFiles, GitClone};
use domain::ids::ProjectId;
use std::{path::Path, sync::Arc};
use tokio_util::sync::CancellationToken;

const BUILD: &str = "build";

/// The workspace that a caller asks for.
#[derive(Debug)]
pub struct OpenSpec {
    /// What the workspace starts from; `None`: no files.
    pub source: Option<Source>,
    /// Branch, tag or commit; empty: the default one.
    pub revision: String,
    /// Whether the last commit holds uncommitted changes.
    pub uncommitted: bool,
    /// The number of this opening.
    pub opening: u32,
    /// What its sandboxes see at `/`.
    pub image: Manifest,
    /// The variables of the image.
    pub env: Vec<String>,
    /// The install whose files it gets besides those of its source.
    pub install: Option<InstallSpec>,
    /// The script that runs at each start of a sandbox; empty: none.
    pub start: String,
    /// Whether the door of the session leads to servers of git, so that submodules can be cloned.
    pub has_door: bool,
    /// The project whose mirror of the repository it may use; `None`: no mirror.
    pub project: Option<ProjectId>,
}

impl OpenSpec {
    /// The clone of its source into a directory of a user.
    fn clone_of<'a>(
        &'a self,
        source: &'a Source,
        session: &'a Session,
        build: &'a Path,
        uid: u32,
    ) -> GitClone<'a> {
        let Self { revision, uncommitted, has_door, project, .. } = self;
        let (uncommitted, has_door, project) = (*uncommitted, *has_door, project.as_ref());
        GitClone { session, source, revision, uncommitted, has_door, project, build, uid }
    }
}

/// What fills a new workspace.
struct Filled {
    base_commit: String,
    base_is_ours: bool,
    origin: String,
    /// The snapshot of the files, if there is one already.
    snapshot: Option<Snapshot>,
    /// What they take on the disk, if it was measured.
    measure: Option<Measure>,
}

impl From<empty::Original> for Filled {
    fn from(original: empty::Original) -> Self {
        let empty::Original { base_commit, snapshot, measure } = original;
        let (snapshot, measure) = (Some(snapshot), Some(measure));
        Self { base_commit, base_is_ours: true, origin: String::new(), snapshot, measure }
    }
}

impl From<ClonedFiles> for Filled {
    fn from(files: ClonedFiles) -> Self {
        let ClonedFiles { base_commit, base_is_ours, origin } = files;
        Self { base_commit, base_is_ours, origin, snapshot: None, measure: None }
    }
}

/// Makes the workspace of a session, unless it exists. Returns whether it made one, and what the workspace started
/// from.
///
/// # Errors
/// What git found: `repository_not_found`, `repository_needs_credentials`, `repository_unreachable`, `repository_unauthorized`, `secret_not_found`,
/// `git_unavailable`,
/// `revision_not_found`, `bundle_invalid`, `disk_full` (too large, or no space on the machine), `layers_missing`,
/// `environment_missing`, `images_unsupported`, `install_missing`. There is then no workspace. A workspace of an
/// earlier opening is removed first.
///
/// It ends early when the caller has `left`: a clone may take minutes. Dropped midway: no workspace; the next call cleans up, but must not
/// begin before the last step has ended, so call it from a task.
pub async fn run(
    session: &Arc<Session>,
    spec: &OpenSpec,
    left: &CancellationToken,
) -> Result<(bool, Meta), Error> {
    source::check_revision(&spec.revision)?;
    close::remove_older(session, spec.opening).await?;
    // The lock keeps other calls from starting a sandbox in the workspace or building it.
    let files = session.files.lock().await;
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
    let slot = shared.take_slot(session.key.tenant)?;
    let pin = shared.images.pin(&spec.image)?;
    let uid = shared.uid(slot.number());
    let build = directory.join(BUILD);
    prepare(&directory, &build).map_err(Error::io("make the workspace's directory"))?;
    give_to(shared.launcher.facts(), uid, &build).map_err(Error::io("give the workspace to its user"))?;

    let filled: Filled = match &spec.source {
        None => {
            let (tenant, snapshots) = (session.key.tenant, directory.join(DIRECTORY));
            let copy = empty::Copy { tenant, uid, tree: &build, snapshots };
            shared.empty.copy(&shared.helpers, copy).await?.into()
        }
        Some(source) => {
            let filled = spec.clone_of(source, session, &build, uid).run(left).await?;
            seed::prepare(session, uid, &build).await;
            if let Some(install) = &spec.install {
                let (image, env, build) = (&spec.image, &spec.env, &build);
                take::run(NewWorkspace { session, image, env, build, uid }, install).await?;
            }
            filled.into()
        }
    };
    let meta = Meta {
        base_commit: filled.base_commit,
        origin: filled.origin,
        base_is_ours: filled.base_is_ours,
        slot: slot.number(),
        opening: spec.opening,
        image: spec.image.clone(),
        env: spec.env.clone(),
        start: spec.start.clone(),
        boot: shared.boot.clone(),
    };
    configuration::keep(session, &build, &meta).await?;
    tokio::fs::rename(&build, directory.join(TREE))
        .await
        .map_err(Error::io("move the workspace into its place"))?;
    {
        let mut known = session.snapshots.lock().await;
        // An earlier workspace of the session may have vanished without being closed.
        known.forget();
        if let Some(snapshot) = filled.snapshot {
            known.keep(snapshot, Proof { starts: files.starts_if_quiet(), fingerprint: None });
        }
    }
    if let Some(measure) = filled.measure {
        session.disk.note_new(measure)?;
    }
    meta.write(&directory)?;
    slot.keep();
    pin.keep();
    Ok((true, meta))
}

/// Clones the source of a workspace into a directory of the user `uid`, for an install.
///
/// # Errors
/// As [`run`]; `argument_invalid` without a source.
///
/// It ends early when the caller has `left`.
pub(super) async fn clone_source(
    session: &Session,
    spec: &OpenSpec,
    build: &Path,
    uid: u32,
    left: &CancellationToken,
) -> Result<(), Error> {
    source::check_revision(&spec.revision)?;
    let missing = || Error::refused(Code::ArgumentInvalid, "an install needs the files of a repository");
    let source = spec.source.as_ref().ok_or_else(missing)?;
    spec.clone_of(source, session, build, uid).run(left).await.map(drop)
}

/// Where an upload is kept until the workspace is made: not below the tree, readable by the session's user.
///
/// # Errors
/// Those of the file system.
pub fn upload(session: &Session) -> Result<Upload, Error> {
    let directory = session.shared.layout.root().join("uploads");
    layout::make_passage(&directory).map_err(Error::io("make the directory of uploads"))?;
    Ok(Upload::to(directory.join(format!("{}.bundle", uuid::Uuid::now_v7().simple()))))
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
