//! The submodules of a new workspace for which the settings name a credential. Helpers without any other way out clone them through the door, with the contents of
//! their files of Git LFS; all others stay empty.

use super::lfs::{self, SubmoduleContents};
use crate::{
    error::Error,
    helper::{Task, refused},
    isolation::launch::Mount,
    session::{opening::OpeningStep, state::Session},
    workspace::door,
};
use rpc::v1::ErrorCode;
use std::{path::Path, time::Duration};
use tokio_util::sync::CancellationToken;

/// Submodules that are cloned with a workspace. Further ones stay empty.
const SUBMODULES_CLONED_MAX: usize = 64;
/// Levels of submodules in submodules. Deeper ones stay empty.
const SUBMODULE_LEVELS_MAX: usize = 8;
/// Longest time for all of them; milliseconds. Beyond it: `sandbox_unavailable`.
const SUBMODULES_MS_MAX: u64 = 600_000;
/// Seconds after which no more contents of Git LFS are brought; the files stay pointers. The rest of the time is for clones.
const SUBMODULES_LFS_SECONDS_MAX: u64 = 420;
const SCRIPT: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/bound.sh"),
    include_str!("../door.sh"),
    include_str!("../lfs-server.sh"),
    include_str!("../submodules.sh")
);

/// Clones them into the files in `build`. One that cannot be cloned stays empty, and the model is told so.
///
/// # Errors
/// `disk_full`: the files are too large; those of the helper.
pub(super) async fn bring(
    session: &Session,
    uid: u32,
    build: &Path,
    left: &CancellationToken,
) -> Result<(), Error> {
    if std::fs::symlink_metadata(build.join(".gitmodules")).is_err() {
        return Ok(());
    }
    let limit_kib = session.shared.config.disk_bytes >> 10;
    let arguments = [
        limit_kib.to_string(),
        SUBMODULES_CLONED_MAX.to_string(),
        SUBMODULE_LEVELS_MAX.to_string(),
        SUBMODULES_LFS_SECONDS_MAX.to_string(),
        lfs::INSIDE.to_owned(),
    ];
    let _step = session.progress.enter(OpeningStep::Submodules(build.to_owned()));
    let contents = SubmoduleContents::open(session, uid, build)?;
    let mounts = [Mount::write(build, "/workspace"), contents.mount()].into_iter();
    let mounts = mounts.chain(door::mounts(session)?);
    let task = Task {
        script: SCRIPT,
        arguments: arguments.into(),
        mounts: mounts.collect(),
        ..Task::new(session.key.tenant, uid, Duration::from_millis(SUBMODULES_MS_MAX))
    };
    let output = session.shared.helpers.run_until(task, 0, left).await;
    contents.close().await;
    let output = output?;
    match output.code {
        0 => Ok(()),
        137 => Err(refused(
            ErrorCode::DiskFull,
            "the submodules exceed the disk or memory limit of a workspace",
            &output.stderr,
        )),
        code => {
            tracing::warn!(code, session.id = %session.key.session, "the submodules of a workspace are not cloned");
            Ok(())
        }
    }
}
