//! Makes a workspace. It is built beside its final place and then renamed, so there is a whole workspace or none.

use super::{
    close, configuration, door, empty,
    helper::{self, refused},
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
    submodules,
};
use crate::{
    code::Code,
    config::GitScheme,
    disk::count::Measure,
    error::Error,
    image::manifest::Manifest,
    isolation::{
        launch::{Mount, give_to},
        policy::Network,
    },
    layout,
    session::state::Session,
};
use domain::{egress::git::GIT_DOOR, text::is_object_id};
use std::{path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Longest clone or unbundling; milliseconds.
const WORKSPACE_OPEN_MS: u64 = 600_000;

const SCRIPT: &str = concat!(
    include_str!("git.sh"),
    include_str!("bound.sh"),
    include_str!("door.sh"),
    include_str!("commit.sh"),
    include_str!("open.sh")
);
const BUILD: &str = "build";
/// Bytes of the script's answer. The script is killed when it prints more.
const ANSWER_BYTES_MAX: usize = 1024;
const BUNDLE_INSIDE: &str = "/run/sbx/source.bundle";
const DIRECTORY_INSIDE: &str = "/run/sbx/source";

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
    /// What it has beside the files of its source.
    pub install: Option<InstallSpec>,
    /// The script that runs at each start of a sandbox; empty: none.
    pub start: String,
    /// Whether the door of the session leads to servers of git, so that submodules can be cloned.
    pub has_door: bool,
}

/// The clone of a repository.
struct GitClone<'a> {
    session: &'a Session,
    spec: &'a OpenSpec,
    source: &'a Source,
    /// The directory that becomes /workspace.
    build: &'a Path,
    uid: u32,
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

    let filled = match &spec.source {
        None => {
            let (tenant, snapshots) = (session.key.tenant, directory.join(DIRECTORY));
            let copy = empty::Copy { tenant, uid, tree: &build, snapshots };
            shared.empty.copy(&shared.helpers, copy).await?.into()
        }
        Some(source) => {
            let filled = GitClone { session, spec, source, build: &build, uid }.run(left).await?;
            seed::prepare(session, uid, &build).await;
            if let Some(install) = &spec.install {
                let (image, env, build) = (&spec.image, &spec.env, &build);
                take::run(NewWorkspace { session, image, env, build, uid }, install).await?;
            }
            filled
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
pub(super) async fn clone(
    session: &Session,
    spec: &OpenSpec,
    build: &Path,
    uid: u32,
    left: &CancellationToken,
) -> Result<(), Error> {
    source::check_revision(&spec.revision)?;
    let missing = || Error::refused(Code::ArgumentInvalid, "an install needs the files of a repository");
    let source = spec.source.as_ref().ok_or_else(missing)?;
    GitClone { session, spec, source, build, uid }.run(left).await.map(drop)
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

impl GitClone<'_> {
    /// Fills the files from the repository, with their submodules.
    async fn run(&self, left: &CancellationToken) -> Result<Filled, Error> {
        let Self { session, spec, build, uid, .. } = *self;
        let (task, origin) = self.task()?;
        // Once the clone has ended, the opening goes on without its caller.
        let output = session.shared.helpers.run_until(task, ANSWER_BYTES_MAX, left).await?;
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.code != 0 {
            return Err(explain(output.code, spec, &output.stderr));
        }
        let Some((ours, base_commit)) =
            answer.trim().split_once(' ').filter(|(_, commit)| is_object_id(commit))
        else {
            return Err(refused(Code::Internal, "git printed no commit", &output.stderr));
        };
        if spec.has_door {
            submodules::bring(session, uid, build, left).await?;
        }
        let (base_commit, base_is_ours) = (base_commit.to_owned(), ours == "yes");
        Ok(Filled { base_commit, base_is_ours, origin, snapshot: None, measure: None })
    }

    /// The helper's task, and the origin that the repository remembers.
    fn task(&self) -> Result<(helper::Task, String), Error> {
        let Self { session, spec, source, build, uid } = *self;
        let mut mounts = vec![Mount::write(build, "/workspace")];
        let (mut network, mut resolve) = (Network::None, String::new());
        let inside = format!("file://{DIRECTORY_INSIDE}");
        let (from, url, origin) = match source {
            Source::Bundle(file) => {
                mounts.push(Mount::read(file.path(), BUNDLE_INSIDE));
                ("bundle", BUNDLE_INSIDE.to_owned(), "bundle".to_owned())
            }
            Source::Directory(path) => {
                mounts.push(Mount::read(path, DIRECTORY_INSIDE));
                ("directory", inside, format!("file://{}", path.display()))
            }
            Source::Door { url, address } => {
                mounts.extend(door::mounts(session)?);
                ("door", format!("{GIT_DOOR}{}{}", address.authority(), address.path()), url.clone())
            }
            Source::Remote { url, scheme, resolve: addresses } => {
                network = Network::Host;
                resolve.clone_from(addresses);
                (if *scheme == GitScheme::Https { "https" } else { "ssh" }, url.clone(), url.clone())
            }
        };
        let limit_kib = session.shared.config.disk_bytes >> 10;
        let uncommitted = if spec.uncommitted { "yes" } else { "no" };
        let mut arguments = vec![from.to_owned(), url, spec.revision.clone(), origin.clone()];
        arguments.extend([limit_kib.to_string(), resolve, uncommitted.to_owned()]);
        let time_limit = Duration::from_millis(WORKSPACE_OPEN_MS);
        let blank = helper::Task::new(session.key.tenant, uid, time_limit);
        let task = helper::Task { script: SCRIPT, arguments, mounts, network, ..blank };
        Ok((task, origin))
    }
}

/// The exit codes of open.sh.
fn explain(code: i32, spec: &OpenSpec, stderr: &str) -> Error {
    match code {
        10 => refused(Code::RepositoryNotFound, "repository not found", stderr),
        11 => {
            let text = "the repository does not exist or needs a credential; name a secret for its URL in environment.git.credentials of the \
                        settings, and set it with `flotilla secret set`";
            refused(Code::RepositoryNeedsCredentials, text, stderr)
        }
        12 => {
            let text = format!("the repository has no branch, tag or commit {:?}", spec.revision);
            Error::refused(Code::RevisionNotFound, text)
        }
        13 => refused(Code::BundleInvalid, "the upload is not a self-contained git bundle", stderr),
        15 => refused(Code::RepositoryUnreachable, "cannot clone the repository", stderr),
        17 => door::find_refusal(stderr)
            .unwrap_or_else(|| refused(Code::RepositoryUnreachable, "cannot clone the repository", stderr)),
        18 => Error::refused(Code::GitUnavailable, "the helper cannot reach the door of the session to git"),
        137 => {
            Error::refused(Code::DiskFull, "the repository exceeds the disk or memory limit of a workspace")
        }
        _ => refused(Code::Internal, "cannot make the workspace", stderr),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_that_needs_a_credential_is_told_with_the_setting_and_the_command() {
        let spec = OpenSpec {
            source: None,
            revision: String::new(),
            uncommitted: false,
            opening: 0,
            image: Manifest::default(),
            env: vec![],
            install: None,
            start: String::new(),
            has_door: false,
        };
        let stderr = "fatal: could not read Username for 'https://h.org': terminal prompts disabled\n";
        let error = explain(11, &spec, stderr);
        assert_eq!(error.code(), Code::RepositoryNeedsCredentials);
        let text = error.to_string();
        for part in ["environment.git.credentials", "`flotilla secret set`", "terminal prompts disabled"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(explain(18, &spec, "").code(), Code::GitUnavailable);
        let refused = explain(17, &spec, "remote: no such secret (git_secret_missing)\n");
        assert_eq!(
            (refused.code(), refused.to_string()),
            (Code::SecretNotFound, "no such secret".to_owned())
        );
        assert_eq!(explain(17, &spec, "fatal: early EOF\n").code(), Code::RepositoryUnreachable);
    }
}
