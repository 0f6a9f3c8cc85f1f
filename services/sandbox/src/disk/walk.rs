//! Walks through a directory tree that a hostile program may change meanwhile. Each directory is opened from the one above
//! it, so no path is too long and no link is followed.

use super::count::{Count, is_directory};
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::CStr,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
};

/// Directories within each other that are measured; each is open meanwhile. No path that a program can name in one call
/// has many more, and real trees have some twenty. Deeper ones are not measured; the service may then take the workspace for full.
pub(super) const DEPTH_MAX: usize = 256;
/// How a directory is opened.
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Counts everything below `root`.
pub(super) fn add(count: &mut Count, root: Dir) {
    let mut open = vec![root];
    while let Some(directory) = open.last_mut() {
        let Some(entry) = directory.read() else {
            open.pop();
            continue;
        };
        let (Ok(entry), Ok(above)) = (entry, directory.fd()) else {
            count.skip();
            open.pop();
            continue;
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if count.is_at_its_end() {
            return count.skip();
        }
        let stat = match rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It was renamed or removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(_) => {
                count.skip();
                continue;
            }
        };
        count.add(&stat);
        if !is_directory(&stat) {
            continue;
        }
        match enter(above, name) {
            Ok(_) if open.len() >= DEPTH_MAX => count.skip(),
            Ok(directory) => open.push(directory),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => count.skip(),
        }
    }
}

fn enter(above: BorrowedFd<'_>, name: &CStr) -> Result<Dir, Errno> {
    match rustix::fs::openat(above, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => Dir::new(open_as_owner(above, name)?),
        other => Dir::new(other?),
    }
}

/// Opens a directory that its mode closes. Root never gets here; otherwise the service is the owner, as every sandbox is, and
/// makes it readable.
fn open_as_owner(above: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(above, name, path, Mode::empty())?;
    let stat = rustix::fs::fstat(&handle)?;
    let by_number = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    let mode = Mode::from_raw_mode(stat.st_mode) | Mode::RUSR | Mode::XUSR;
    rustix::fs::chmod(&by_number, mode)?;
    rustix::fs::open(&by_number, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
