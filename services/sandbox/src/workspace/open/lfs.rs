//! Fills the files of Git LFS in a new workspace whose repository is behind the door. A helper, which reaches only the door, asks the server for the contents. It
//! reads the contents that the mirror of the project has from this disk, and transfers the others. The helper also keeps all contents beside the snapshots, where no
//! program of a tenant sees them: snapshots, diffs and exports have pointers in their place. The service then keeps the contents in the mirror.

use crate::{
    code::Code,
    error::Error,
    isolation::launch::{Mount, give_to},
    session::state::Session,
    workspace::{
        door,
        helper::{Task, refused},
        mirror::{generation::Generation, store::MirrorUse},
        scratch::Scratch,
        snapshots::{
            seed,
            track::{DIRECTORY, LFS_OBJECTS},
        },
    },
};
use domain::egress::{
    git::GitAddress,
    lfs::report::{LFS_REPORT_BYTES_MAX, LfsReport},
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Longest time for all contents; milliseconds. Beyond it: `sandbox_unavailable`.
const LFS_MS_MAX: u64 = 600_000;
/// Where the helper keeps the contents.
const INSIDE: &str = "/run/sbx/lfs";
const SCRIPT: &str =
    concat!(include_str!("../git.sh"), include_str!("../bound.sh"), include_str!("../lfs.sh"));

/// The contents.
#[derive(Debug)]
pub(super) struct LfsContents<'a> {
    pub(super) session: &'a Session,
    /// The files of the repository.
    pub(super) build: &'a Path,
    /// Their user.
    pub(super) uid: u32,
    /// Where the repository is.
    pub(super) address: &'a GitAddress,
    /// As the caller gave it.
    pub(super) url: &'a str,
}

/// Where the contents are kept.
enum Store {
    Workspace(PathBuf),
    /// The clone of an install, which has no snapshots.
    Install(Scratch),
}

impl LfsContents<'_> {
    /// Puts the contents in place of their pointers, and keeps them in the mirror. Files whose contents the server does not have stay pointers, and the model is
    /// told so.
    ///
    /// # Errors
    /// `lfs_object_invalid`, `repository_unauthorized`, `repository_unreachable`, `secret_not_found`, `git_unavailable`, `disk_full`; those of the helper.
    pub(super) async fn bring(
        &self,
        mirror: Option<MirrorUse>,
        left: &CancellationToken,
    ) -> Result<(), Error> {
        let store = self.store()?;
        let generation = mirror.as_ref().and_then(MirrorUse::generation);
        let filled = self.fill(store.path(), generation, left).await;
        if let Some(mirror) = mirror
            && let Ok(Some(report)) = &filled
        {
            // Before the first program of the tenant runs.
            mirror.keep_objects(report.clone(), store.path().to_owned()).await;
        }
        match store {
            Store::Workspace(_) => {}
            Store::Install(scratch) => scratch.remove().await,
        }
        filled.map(drop)
    }

    fn store(&self) -> Result<Store, Error> {
        let Self { session, build, uid, .. } = *self;
        let shared = &session.shared;
        let workspace = shared.layout.workspace(&session.key);
        if !build.starts_with(&workspace) {
            return Scratch::make(session, uid).map(Store::Install);
        }
        seed::make_directory(session, uid)?;
        let path = workspace.join(DIRECTORY).join(LFS_OBJECTS);
        std::fs::create_dir(&path)
            .and_then(|()| give_to(shared.launcher.facts(), uid, &path))
            .map_err(Error::io("make the directory of Git LFS"))?;
        Ok(Store::Workspace(path))
    }

    /// Runs the helper. Returns its report; `None` if it printed something else.
    async fn fill(
        &self,
        store: &Path,
        mirror: Option<&Generation>,
        left: &CancellationToken,
    ) -> Result<Option<LfsReport>, Error> {
        let Self { session, build, uid, address, url } = *self;
        let limit_kib = session.shared.config.disk_bytes >> 10;
        let repository = address.clone().with_repository_ending();
        let place = format!("{}{}", repository.authority(), repository.path());
        let mounts = [Mount::write(build, "/workspace"), Mount::write(store, INSIDE)];
        let mounts = mounts.into_iter().chain(mirror.and_then(Generation::mount_objects));
        let task = Task {
            script: SCRIPT,
            arguments: vec![limit_kib.to_string(), place, url.to_owned()],
            mounts: mounts.chain(door::mounts(session)?).collect(),
            ..Task::new(session.key.tenant, uid, Duration::from_millis(LFS_MS_MAX))
        };
        let output = session.shared.helpers.run_until(task, LFS_REPORT_BYTES_MAX, left).await?;
        match output.code {
            0 => Ok(LfsReport::parse(&String::from_utf8_lossy(&output.stdout))),
            137 => Err(refused(
                Code::DiskFull,
                "the contents of Git LFS exceed the disk or memory limit of a workspace",
                &output.stderr,
            )),
            _ => Err(door::find_refusal(&output.stderr).unwrap_or_else(|| {
                refused(Code::Internal, "cannot fill the files of Git LFS", &output.stderr)
            })),
        }
    }
}

impl Store {
    fn path(&self) -> &Path {
        match self {
            Self::Workspace(path) => path,
            Self::Install(scratch) => scratch.path(),
        }
    }
}
