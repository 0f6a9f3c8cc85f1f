//! The user ids of sandboxes. Each workspace has one of its own, so no two services of a machine may use the same.

use anyhow::{Context as _, bail};
use chassis::shutdown::predecessor::{self, PREDECESSOR_WAIT};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// The first user id of the first service of a machine.
const FIRST: u32 = 200_000;
/// Ranges that a service tries before it gives up. Then it does not start.
const RANGES_MAX: u32 = 1_024;
/// The file whose bytes stand for the user ids of the machine: the lock on a byte is the right to an id. The kernel
/// releases it when the service ends, however it ends.
const LOCKS: [&str; 2] = ["/run/flotilla-user-ids", "/tmp/.flotilla-user-ids"];
/// The file below the data directory with the first id, which owns the files of the first workspace.
const CHOICE: &str = "user-ids";

/// User ids, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserIds {
    pub first: u32,
    pub count: u32,
}

/// The exclusive right to user ids of this machine, until it is dropped.
#[derive(Debug)]
pub struct UserIdsLock {
    pub ids: UserIds,
    _file: File,
}

impl UserIds {
    /// Whether `uid` is one of them.
    pub(crate) fn contain(self, uid: u32) -> bool {
        uid.checked_sub(self.first).is_some_and(|place| place < self.count)
    }

    /// Reserves `count` ids from `first` on; without `first` those that this data directory had before, else the first free ones.
    ///
    /// # Errors
    /// When another service of this machine has one of them for longer than a predecessor needs to end, or the file of the locks cannot be
    /// opened.
    pub async fn reserve(data: &Path, first: Option<u32>, count: u32) -> anyhow::Result<UserIdsLock> {
        let file = open()?;
        let choice = data.join(CHOICE);
        let Some(ids) = first.map(|first| Self { first, count }).or_else(|| earlier(data, &choice, count))
        else {
            let candidates = (0..RANGES_MAX).map_while(|range| FIRST.checked_add(range.checked_mul(count)?));
            for first in candidates {
                let ids = Self { first, count };
                if ids.lock(&file).context("lock user ids")? {
                    fs::write(&choice, first.to_string())
                        .with_context(|| format!("write {}", choice.display()))?;
                    return Ok(UserIdsLock { ids, _file: file });
                }
            }
            bail!("other sandbox services use all user ids of this machine; stop one of them");
        };
        // The predecessor of this service may still hold them.
        let attempt = || Ok(ids.lock(&file)?.then_some(()));
        let locked = predecessor::acquire(PREDECESSOR_WAIT, attempt).await.context("lock user ids")?;
        if locked.is_some() {
            return Ok(UserIdsLock { ids, _file: file });
        }
        bail!(
            "another sandbox service of this machine uses user ids between {first} and {last}: stop it, or choose others with \
             FLOTILLA_SANDBOX_UID_BASE before the first workspace is opened",
            first = ids.first,
            last = ids.first.saturating_add(ids.count - 1),
        )
    }

    /// Locks the bytes of these ids; false if another service has one of them.
    fn lock(self, file: &File) -> io::Result<bool> {
        let whole = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: self.first.into(),
            l_len: self.count.into(),
            l_pid: 0,
        };
        match fcntl(file, FcntlArg::F_OFD_SETLK(&whole)) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The ids of the workspaces that exist in this data directory.
fn earlier(data: &Path, choice: &Path, count: u32) -> Option<UserIds> {
    if let Ok(text) = fs::read_to_string(choice) {
        return Some(UserIds { first: text.trim().parse().ok()?, count });
    }
    // Workspaces that are older than the choice have the ids that every service had.
    let has_workspaces = fs::read_dir(data.join("ws")).is_ok_and(|mut tenants| tenants.next().is_some());
    has_workspaces.then_some(UserIds { first: FIRST, count })
}

fn open() -> anyhow::Result<File> {
    let open = |path: &&str| {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
    };
    let file = LOCKS.iter().find_map(|path| open(path).ok());
    file.with_context(|| format!("open {}: the locks of the user ids of this machine", LOCKS.join(" or ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// Far from the ids of real services and of other tests.
    fn ids(number: u32) -> UserIds {
        UserIds { first: 2_000_000_000 + std::process::id() % 1_000_000 * 100 + number, count: 10 }
    }

    #[test]
    fn ranges_that_overlap_are_refused_and_neighbours_are_not() {
        let file = || {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(directory().join("locks"))
                .unwrap()
        };
        fn directory() -> std::path::PathBuf {
            static DIRECTORY: std::sync::LazyLock<tempfile::TempDir> =
                std::sync::LazyLock::new(|| tempfile::tempdir().unwrap());
            DIRECTORY.path().to_owned()
        }
        let (one, other) = (file(), file());
        assert!(ids(0).lock(&one).unwrap());
        assert!(!ids(9).lock(&other).unwrap());
        assert!(ids(10).lock(&other).unwrap());
        drop(one);
        assert!(ids(0).lock(&other).unwrap());
    }

    #[test]
    fn a_data_directory_keeps_its_ids() {
        let data = tempfile::tempdir().unwrap();
        let choice = data.path().join(CHOICE);
        assert_eq!(earlier(data.path(), &choice, 7), None);
        fs::create_dir_all(data.path().join("ws/tenant")).unwrap();
        assert_eq!(earlier(data.path(), &choice, 7), Some(UserIds { first: FIRST, count: 7 }));
        fs::write(&choice, "300000").unwrap();
        assert_eq!(earlier(data.path(), &choice, 7), Some(UserIds { first: 300_000, count: 7 }));
    }
}
