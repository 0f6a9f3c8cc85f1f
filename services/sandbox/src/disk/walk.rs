//! Walks through a directory tree that a hostile program may change meanwhile. Each directory is opened from the one above
//! it, so no path is too long and no link is followed.

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat},
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
pub const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What is done with the entries of a tree.
pub trait Visitor {
    /// Whether the walk ends here, although there may be more entries.
    fn is_at_its_end(&self) -> bool;

    /// Takes an entry; `depth` is the number of directories that lead to it. The entries of a directory follow it.
    fn add(&mut self, name: &CStr, depth: usize, stat: &Stat);

    /// Notes that the walk leaves something out.
    fn skip(&mut self);
}

/// Shows everything below `root` to `visitor`.
pub fn walk(visitor: &mut impl Visitor, root: Dir) {
    let mut open = vec![root];
    loop {
        let depth = open.len();
        let Some(directory) = open.last_mut() else { return };
        let Some(entry) = directory.read() else {
            open.pop();
            continue;
        };
        let (Ok(entry), Ok(above)) = (entry, directory.fd()) else {
            visitor.skip();
            open.pop();
            continue;
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if visitor.is_at_its_end() {
            return visitor.skip();
        }
        let stat = match rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It was renamed or removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(_) => {
                visitor.skip();
                continue;
            }
        };
        visitor.add(name, depth, &stat);
        if !is_directory(&stat) {
            continue;
        }
        match enter(above, name) {
            Ok(_) if depth >= DEPTH_MAX => visitor.skip(),
            Ok(directory) => open.push(directory),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => visitor.skip(),
        }
    }
}

/// Whether it is a directory.
pub fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
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
