//! Fills the files of Git LFS in a new workspace. If the files are a copy of those of another session, a helper takes the contents that this session has. It asks the
//! server for all others, through the door, which is all that it reaches. It reads those that the mirror of the project has from this disk, and transfers the rest. The
//! helper also keeps all contents next to the snapshots, where no program of a tenant sees them: snapshots, diffs and exports have pointers in their place. The service
//! then keeps in the mirror what the server gave.

use super::kept;
use crate::{
    error::Error,
    helper::{Queue, Task, refused},
    isolation::launch::{Mount, give_to},
    mirror::{
        arrivals::{self, Arrival, ObjectsBringer},
        generation::{self, Generation},
        store::MirrorUse,
    },
    session::{opening::OpeningStep, state::Session},
    tree::{
        source::{LfsOrigins, LfsRepository},
        track::{DIRECTORY, LFS_OBJECTS},
    },
    workspace::{door, scratch::Scratch, snapshots::seed},
};
use domain::egress::lfs::{
    arrivals::ARRIVALS_WAIT_MAX,
    report::{LFS_REPORT_BYTES_MAX, LfsReport},
};
use rpc::v1::ErrorCode;
use shares::Permit;
use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Longest time to transfer all contents, without the wait for another session that brings them; milliseconds. Beyond it: `sandbox_unavailable`.
const LFS_MS_MAX: u64 = 600_000;
/// The queue of the helper.
const QUEUE: Queue = Queue::Transfer;
/// Where the helper keeps the contents.
pub(super) const INSIDE: &str = "/run/sbx/lfs";
/// The argument of a script whose files may stay pointers.
const OPTIONAL: &str = "optional";
/// Where it finds the contents of the session whose files these are copies of.
const KEPT_INSIDE: &str = "/run/sbx/lfs-kept";
const SCRIPT: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/bound.sh"),
    include_str!("../lfs-server.sh"),
    include_str!("../lfs.sh")
);

#[derive(Debug)]
pub(super) struct LfsContents<'a> {
    pub(super) session: &'a Session,
    /// The files of the repository.
    pub(super) build: &'a Path,
    pub(super) uid: u32,
    pub(super) origins: &'a LfsOrigins,
}

/// Where contents are on this disk.
#[derive(Debug, Clone, Copy)]
struct LfsSource<'a> {
    mirror: Option<&'a Generation>,
    /// What another session is bringing.
    arrival: Option<&'a Arrival>,
    /// What the session has whose files these are copies of.
    kept: Option<&'a Path>,
}

impl LfsSource<'_> {
    /// The helper may wait for another session in vain, and then needs the whole time to transfer.
    fn time_limit(&self) -> Duration {
        let wait = self.arrival.map_or(Duration::ZERO, |_| ARRIVALS_WAIT_MAX);
        Duration::from_millis(LFS_MS_MAX) + wait
    }
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
        let kept = match &self.origins.session {
            Some(from) => kept::link(self.session, self.uid, from).await,
            None => None,
        };
        if kept.is_none() && self.origins.repository.is_none() {
            return Ok(());
        }
        // First of all: while this session waits for its turn, others may bring the objects to the mirror, and the session that the others wait for must not wait for
        // a turn itself.
        let helpers = &self.session.shared.helpers;
        let turn = helpers.wait_for_turn(self.session.key.tenant, QUEUE, left).await?;
        let store = self.store()?;
        let _step = self.session.progress.enter(OpeningStep::Lfs(store.path().to_owned()));
        // In this order: what another session has brought before this one looks is in the newest generation.
        let bringer = mirror.as_ref().and_then(|mirror| mirror.begin_objects(store.path()));
        let mirror = match mirror {
            Some(mirror) => Some(mirror.refresh().await?),
            None => None,
        };
        let source = LfsSource {
            mirror: mirror.as_ref().and_then(MirrorUse::generation),
            arrival: bringer.as_ref().and_then(ObjectsBringer::arrival),
            kept: kept.as_ref().map(Scratch::path),
        };
        let filled = match self.fill(turn, store.path(), source, left).await {
            // The other session may have ended while the helper started, and its directories with it. A helper that did not start has done nothing.
            Err(error) if error.code() == ErrorCode::Internal && source.arrival.is_some() => {
                let turn = helpers.wait_for_turn(self.session.key.tenant, QUEUE, left).await?;
                self.fill(turn, store.path(), LfsSource { arrival: None, ..source }, left).await
            }
            filled => filled,
        };
        if let Some(mirror) = mirror
            && let Ok(Some(report)) = &filled
        {
            // Before the first program of the tenant runs.
            mirror.keep_objects(report.clone(), store.path().to_owned()).await;
        }
        // Sessions that begin from now on find the objects in the mirror.
        drop(bringer);
        match filled {
            Ok(_) => self.settle(store).await,
            Err(error) => {
                store.remove().await;
                Err(error)
            }
        }
    }

    /// Makes the directory of the contents. Helpers of other sessions of the project, which have other users, read it, so it is at a place whose random name only the
    /// service can list, as a mirror is.
    fn store(&self) -> Result<Scratch, Error> {
        let store = Scratch::make(self.session, self.uid)?;
        std::fs::set_permissions(store.path(), Permissions::from_mode(0o755))
            .map_err(Error::io("open the directory of Git LFS"))?;
        Ok(store)
    }

    /// Moves the contents next to the snapshots of the workspace, where no other user finds them. The clone of an install has no snapshots.
    async fn settle(&self, store: Scratch) -> Result<(), Error> {
        let Self { session, build, uid, .. } = *self;
        if !has_snapshots(session, build) {
            store.remove().await;
            return Ok(());
        }
        seed::make_directory(session, uid)?;
        let place = session.shared.layout.workspace(&session.key).join(DIRECTORY).join(LFS_OBJECTS);
        store.move_to(&place).map_err(Error::io("keep the contents of Git LFS"))
    }

    /// Runs the helper. Returns its report; `None` if it printed something else.
    async fn fill(
        &self,
        turn: Permit,
        store: &Path,
        source: LfsSource<'_>,
        left: &CancellationToken,
    ) -> Result<Option<LfsReport>, Error> {
        let Self { session, build, uid, origins } = *self;
        let limit_kib = session.shared.config.disk_bytes >> 10;
        let mut mounts = vec![Mount::write(build, "/workspace"), Mount::write(store, INSIDE)];
        mounts.extend(source.mirror.and_then(Generation::mount_objects));
        mounts.extend(source.arrival.into_iter().flat_map(Arrival::mounts));
        mounts.extend(source.kept.map(|kept| Mount::read(kept, KEPT_INSIDE)));
        let (mut place, mut url, mut optional) = (String::new(), String::new(), "");
        if let Some(LfsRepository { url: given, address, is_required }) = &origins.repository {
            optional = if *is_required { "" } else { OPTIONAL };
            let address = address.clone().with_repository_ending();
            place = format!("{}{}", address.authority(), address.path());
            url.clone_from(given);
            mounts.extend(door::mounts(session)?);
        } else {
            // The contents are those of another session.
            mounts.push(door::init(session));
        }
        let mut arguments = vec![limit_kib.to_string(), place, url, optional.to_owned()];
        let inside = [
            INSIDE,
            generation::OBJECTS_INSIDE,
            arrivals::OBJECTS_INSIDE,
            arrivals::LOCK_INSIDE,
            KEPT_INSIDE,
        ];
        arguments.extend(inside.map(str::to_owned));
        let task = Task {
            script: SCRIPT,
            arguments,
            mounts,
            queue: QUEUE,
            ..Task::new(session.key.tenant, uid, source.time_limit())
        };
        let output = session.shared.helpers.run_in_turn(turn, task, LFS_REPORT_BYTES_MAX, left).await?;
        match output.code {
            0 => Ok(LfsReport::parse(&String::from_utf8_lossy(&output.stdout))),
            137 => Err(refused(
                ErrorCode::DiskFull,
                "the contents of Git LFS exceed the disk or memory limit of a workspace",
                &output.stderr,
            )),
            _ => Err(door::find_refusal(&output.stderr).unwrap_or_else(|| {
                refused(ErrorCode::Internal, "cannot fill the files of Git LFS", &output.stderr)
            })),
        }
    }
}

/// Whether files become those of the workspace. Those of an install have no snapshots, so nothing needs the contents next to them.
fn has_snapshots(session: &Session, build: &Path) -> bool {
    build.starts_with(session.shared.layout.workspace(&session.key))
}

/// The directory of contents in which the helper for submodules adds those of theirs.
#[derive(Debug)]
pub(super) enum SubmoduleContents {
    Kept(PathBuf),
    /// One that is removed again.
    Temporary(Scratch),
}

impl SubmoduleContents {
    /// Finds the directory, or makes it.
    pub(super) fn open(session: &Session, uid: u32, build: &Path) -> Result<Self, Error> {
        if !has_snapshots(session, build) {
            return Scratch::make(session, uid).map(Self::Temporary);
        }
        seed::make_directory(session, uid)?;
        let place = session.shared.layout.workspace(&session.key).join(DIRECTORY).join(LFS_OBJECTS);
        if !place.is_dir() {
            std::fs::create_dir(&place)
                .and_then(|()| give_to(session.shared.launcher.facts(), uid, &place))
                .map_err(Error::io("make the directory of Git LFS"))?;
        }
        Ok(Self::Kept(place))
    }

    /// As the helper sees it.
    pub(super) fn mount(&self) -> Mount {
        match self {
            Self::Kept(place) => Mount::write(place, INSIDE),
            Self::Temporary(scratch) => Mount::write(scratch.path(), INSIDE),
        }
    }

    /// Removes the directory, unless it has contents that the workspace keeps. The helper has ended.
    pub(super) async fn close(self) {
        match self {
            // Only an empty directory is removed.
            Self::Kept(place) => drop(std::fs::remove_dir(place)),
            Self::Temporary(scratch) => scratch.remove().await,
        }
    }
}
