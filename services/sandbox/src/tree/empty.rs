//! The workspace of a session that starts from no files. Git makes one with its first snapshot, before any program of a tenant runs; all others are
//! copies of it. So such a session starts its first command without a helper before it.

use super::{
    known::Snapshot,
    meta::TREE,
    track::{DIRECTORY, TrackedFiles},
};
use crate::{
    disk::{count::Measure, survey},
    error::{Error, blocking},
    helper::{Helpers, Queue, Task, refused},
    isolation::{
        facts::Facts,
        launch::{Mount, give_to},
        policy::User,
    },
    layout::{make_passage, remove_directory},
};
use domain::{ids::TenantId, limits, text::is_object_id};
use rpc::v1::ErrorCode;
use std::{
    fs, io,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::sync::OnceCell;

const SCRIPT: &str =
    concat!(include_str!("../helper/git.sh"), include_str!("../helper/commit.sh"), include_str!("empty.sh"));
/// Bytes of the script's answer, a commit. The script is killed when it prints more.
const ANSWER_BYTES_MAX: usize = 128;

/// The workspace that others are copied from; made at the first use.
#[derive(Debug)]
pub struct EmptyWorkspace {
    directory: PathBuf,
    facts: Facts,
    original: OnceCell<Original>,
}

#[derive(Debug, Clone)]
pub(crate) struct Original {
    /// The commit that they start from.
    pub(crate) base_commit: String,
    /// The snapshot of their files.
    pub(crate) snapshot: Snapshot,
    /// What the files take on the disk.
    pub(crate) measure: Measure,
}

#[derive(Debug)]
pub(crate) struct Copy<'a> {
    pub(crate) tenant: TenantId,
    /// The user of the files.
    pub(crate) uid: u32,
    /// The directory that becomes /workspace; it exists.
    pub(crate) tree: &'a Path,
    /// The snapshots; they do not exist.
    pub(crate) snapshots: PathBuf,
}

impl EmptyWorkspace {
    /// An original that will be made in `directory`.
    pub fn new(directory: PathBuf, facts: Facts) -> Self {
        Self { directory, facts, original: OnceCell::new() }
    }

    /// Makes a copy.
    ///
    /// # Errors
    /// Those of the helper and of the file system.
    ///
    /// Dropped midway: files are missing; the workspace must be built again.
    pub(crate) async fn copy(&self, helpers: &Helpers, to: Copy<'_>) -> Result<Original, Error> {
        let original = self.original.get_or_try_init(|| self.make(helpers, &to)).await?;
        let (from, tree) = (self.directory.clone(), to.tree.to_owned());
        let (facts, uid) = (self.facts.clone(), to.uid);
        blocking("copy the empty workspace", move || {
            fs::create_dir(&to.snapshots)?;
            give_to(&facts, uid, &to.snapshots)?;
            let owner = (facts.user == User::PerSession).then_some(uid);
            copy(&from.join(TREE), &tree, owner)?;
            copy(&from.join(DIRECTORY), &to.snapshots, owner)
        })
        .await?;
        Ok(original.clone())
    }

    /// Makes the original, as the user of the first copy. No sandbox of a session ever sees it.
    async fn make(&self, helpers: &Helpers, first: &Copy<'_>) -> Result<Original, Error> {
        let [tree, snapshots] = [TREE, DIRECTORY].map(|name| self.directory.join(name));
        let prepare = || {
            remove_directory(&self.directory)?;
            make_passage(&self.directory)?;
            [&tree, &snapshots].into_iter().try_for_each(|directory| {
                fs::create_dir(directory)?;
                give_to(&self.facts, first.uid, directory)
            })
        };
        prepare().map_err(Error::io("make the empty workspace"))?;
        let task = Task {
            script: SCRIPT,
            mounts: vec![Mount::write(&tree, "/workspace")],
            queue: Queue::Quick,
            ..Task::new(first.tenant, first.uid, Duration::from_millis(limits::WORKSPACE_HELPER_MS))
        };
        let output = helpers.run(task, ANSWER_BYTES_MAX).await?;
        let base_commit = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.code != 0 || !is_object_id(&base_commit) {
            return Err(refused(ErrorCode::Internal, "cannot make the empty workspace", &output.stderr));
        }
        let (tenant, uid) = (first.tenant, first.uid);
        let files = TrackedFiles { tenant, uid, tree, snapshots, object_format: "sha1" };
        let tree = files.tree.clone();
        let snapshot = files.track(helpers).await?;
        let measure = move || survey::measure(&tree, &[], 0);
        let measure = blocking("measure the empty workspace", measure).await?;
        Ok(Original { base_commit, snapshot, measure })
    }
}

/// Copies directories and files that git made, with their modes; there is nothing else among them. Gives them to `owner`.
fn copy(from: &Path, to: &Path, owner: Option<u32>) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copied = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&copied)?;
            copy(&entry.path(), &copied, owner)?;
            fs::set_permissions(&copied, entry.metadata()?.permissions())?;
        } else {
            fs::copy(entry.path(), &copied)?;
        }
        if owner.is_some() {
            chown(&copied, owner, owner)?;
        }
    }
    Ok(())
}
