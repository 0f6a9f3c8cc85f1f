//! Turns what a build changed into a layer: what no layer may have is removed, and the rest belongs to the owner of layers. The build may have been
//! hostile. It has ended, so no process changes the tree any more; the service still follows no link.

use super::{
    script::{BuildStage, too_large},
    store::Record,
};
use crate::{disk::space::Space, error::Error, isolation::root::skeleton::HIDDEN};
use rpc::v1::ErrorCode;
use rustix::{
    fs::{self, AtFlags, Dir, FileType, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    collections::HashSet,
    ffi::CStr,
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

/// Directories within each other in what a setup leaves, as in a layer of an image. Beyond it: `setup_failed`.
const SETUP_DEPTH_MAX: usize = 64;
/// Files, directories and links that a setup may leave, as in a layer of an image. Beyond it: `setup_disk_full`.
pub(super) const SETUP_ENTRIES_MAX: u64 = 1_000_000;

/// What hides everything below the same directory of lower layers.
const OPAQUE: &CStr = c"user.overlay.opaque";
/// Bytes of the names of all attributes of a file: the kernel's own limit.
const NAMES_BYTES: usize = 64 * 1024;
/// How a directory is opened.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// What every layer lets others do with its directories and its files.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o444;
/// The same for programs: only their owner may have been allowed to run them, and no session is their owner.
const PROGRAM_MODE: u32 = 0o555;
/// The bit of a mode that lets the owner run a file.
const OWNER_RUNS: u32 = 0o100;
/// Which bits of a mode a layer keeps: not those that give the rights of another user.
const DIRECTORY_BITS: u32 = 0o1777;
const FILE_BITS: u32 = 0o777;

/// A directory that is being read.
struct Level {
    directory: Dir,
    /// Its path below the tree, with a slash at its end.
    path: Vec<u8>,
}

/// The layer that is made.
struct Cleaning {
    owner: Option<u32>,
    bytes_max: u64,
    record: Record,
    /// Files with several names that were counted.
    seen: HashSet<u64>,
}

/// Cleans a tree, whose files then belong to `owner`, and returns what the layer takes. Blocks.
///
/// # Errors
/// `setup_failed`, `setup_disk_full`; those of the file system.
pub(super) fn clean(tree: &Path, owner: Option<u32>, bytes_max: u64) -> Result<Record, Error> {
    let cleaning = Cleaning { owner, bytes_max, record: Record::default(), seen: HashSet::new() };
    let doing = "clean what a setup left";
    let root = fs::open(tree, DIRECTORY, Mode::empty()).map_err(|error| Error::io(doing)(error.into()))?;
    cleaning.run(root).map_err(|error| match error.downcast::<Error>() {
        Ok(refusal) => refusal,
        Err(error) => Error::io(doing)(error),
    })
}

impl Cleaning {
    fn run(mut self, root: OwnedFd) -> io::Result<Record> {
        self.own(&root)?;
        let mut levels = vec![Level { directory: Dir::new(root)?, path: vec![] }];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.directory.read() else {
                levels.pop();
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let path = [level.path.as_slice(), name.to_bytes()].concat();
            let above = level.directory.fd()?;
            if HIDDEN.iter().any(|hidden| hidden.as_bytes() == path) {
                remove(above, name)?;
                continue;
            }
            let Some(directory) = self.entry(above, name)? else { continue };
            if levels.len() >= SETUP_DEPTH_MAX {
                let text =
                    format!("the setup left more than {SETUP_DEPTH_MAX} directories within each other");
                return Err(io::Error::other(Error::refused(ErrorCode::SetupFailed, text)));
            }
            levels.push(Level { directory: Dir::new(directory)?, path: [path.as_slice(), b"/"].concat() });
        }
        Ok(self.record)
    }

    /// Cleans one entry. Returns a directory, whose entries come next.
    fn entry(&mut self, above: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<OwnedFd>> {
        let stat = fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let directory = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                // Root may open every directory. Another service owns it, and its mode may close it.
                let file = handle(above, name)?;
                self.own(&file)?;
                Some(fs::openat(above, name, DIRECTORY, Mode::empty())?)
            }
            FileType::RegularFile => {
                self.own(&handle(above, name)?)?;
                None
            }
            FileType::Symlink => {
                self.give(above, name, &stat)?;
                None
            }
            // It hides an entry of a lower layer.
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                self.give(above, name, &stat)?;
                None
            }
            FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Fifo
            | FileType::Socket
            | FileType::Unknown => {
                fs::unlinkat(above, name, AtFlags::empty())?;
                return Ok(None);
            }
        };
        self.count(&stat)?;
        Ok(directory)
    }

    fn count(&mut self, stat: &Stat) -> io::Result<()> {
        self.record.entries += 1;
        if stat.st_nlink <= 1 || self.seen.insert(stat.st_ino) {
            self.record.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
        if self.record.bytes <= self.bytes_max && self.record.entries <= SETUP_ENTRIES_MAX {
            return Ok(());
        }
        let limit = Space { bytes: self.bytes_max, inodes: SETUP_ENTRIES_MAX };
        Err(io::Error::other(too_large(BuildStage::Setup, limit)))
    }

    fn give(&self, above: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<()> {
        let Some(owner) = self.owner.filter(|owner| stat.st_uid != *owner || stat.st_gid != *owner) else {
            return Ok(());
        };
        let (user, group) = (fs::Uid::from_raw(owner), fs::Gid::from_raw(owner));
        Ok(fs::chownat(above, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Cleans a file or directory that is open as a path.
    fn own(&self, file: &OwnedFd) -> io::Result<()> {
        // A descriptor that only names a path cannot be changed itself. Its number leads to the file, never through a link.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let stat = fs::fstat(file)?;
        if let Some(owner) = self.owner {
            std::os::unix::fs::chown(&path, Some(owner), Some(owner))?;
        }
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let (add, keep) = match (is_directory, stat.st_mode & OWNER_RUNS != 0) {
            (true, _) => (DIRECTORY_MODE, DIRECTORY_BITS),
            (false, true) => (PROGRAM_MODE, FILE_BITS),
            (false, false) => (FILE_MODE, FILE_BITS),
        };
        fs::chmod(&path, Mode::from_raw_mode((stat.st_mode | add) & keep))?;
        drop_attributes(&path, is_directory)
    }
}

fn handle(above: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    fs::openat(above, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Removes every attribute but the one that hides what is below.
fn drop_attributes(path: &str, is_directory: bool) -> io::Result<()> {
    let mut names = vec![0; NAMES_BYTES];
    let length = match fs::listxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    for name in names[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if is_directory && name == OPAQUE {
            continue;
        }
        match fs::removexattr(path, name) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Removes an entry with everything below it.
fn remove(above: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let name = name.to_str().map_err(io::Error::other)?;
    let path = format!("/proc/self/fd/{}/{name}", above.as_fd().as_raw_fd());
    if fs::lstat(&path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
        return std::fs::remove_dir_all(path);
    }
    std::fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{
        fs as files,
        os::unix::{
            fs::{MetadataExt as _, PermissionsExt as _, symlink},
            net::UnixListener,
        },
    };

    #[test]
    fn what_no_layer_may_have_is_removed_and_nothing_outside_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, outside) = (directory.path().join("tree"), directory.path().join("outside"));
        for path in ["tree/usr/bin", "tree/opt/flotilla/lib", "tree/etc", "tree/tmp/x", "outside/flotilla"] {
            files::create_dir_all(directory.path().join(path)).unwrap();
        }
        for path in ["usr/bin/tool", "opt/flotilla/init", "etc/hosts", "etc/passwd", "tmp/x/y"] {
            files::write(tree.join(path), "content").unwrap();
        }
        files::write(outside.join("flotilla/kept"), "kept").unwrap();
        // Links where the skeleton has directories.
        symlink(&outside, tree.join("run")).unwrap();
        symlink(&outside, tree.join("home")).unwrap();
        symlink("/etc/shadow", tree.join("etc/link")).unwrap();
        let tool = tree.join("usr/bin/tool");
        files::set_permissions(&tool, files::Permissions::from_mode(0o6711)).unwrap();
        fs::setxattr(&tool, "user.x", b"y", fs::XattrFlags::empty()).unwrap();
        for name in ["user.overlay.opaque", "user.overlay.redirect"] {
            fs::setxattr(tree.join("etc"), name, b"y", fs::XattrFlags::empty()).unwrap();
        }
        let fifo = fs::mknodat(fs::CWD, tree.join("usr/fifo"), FileType::Fifo, Mode::from_raw_mode(0o666), 0);
        fifo.unwrap();
        drop(UnixListener::bind(tree.join("usr/socket")).unwrap());
        let record = clean(&tree, None, 1 << 20).unwrap();
        let mut names: Vec<String> = vec![];
        let mut open = vec![tree.clone()];
        while let Some(directory) = open.pop() {
            for entry in files::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                names.push(path.strip_prefix(&tree).unwrap().display().to_string());
                if path.symlink_metadata().unwrap().is_dir() {
                    open.push(path);
                }
            }
        }
        names.sort();
        assert_eq!(names, ["etc", "etc/link", "etc/passwd", "home", "opt", "usr", "usr/bin", "usr/bin/tool"]);
        assert_eq!(record.entries, names.len() as u64);
        assert_eq!(files::metadata(&tool).unwrap().mode() & 0o7777, 0o755);
        assert_eq!(fs::getxattr(&tool, "user.x", &mut [0; 4]), Err(Errno::NODATA));
        assert_eq!(fs::getxattr(tree.join("etc"), "user.overlay.opaque", &mut [0; 4]), Ok(1));
        assert_eq!(fs::getxattr(tree.join("etc"), "user.overlay.redirect", &mut [0; 4]), Err(Errno::NODATA));
        assert_eq!(files::read_to_string(outside.join("flotilla/kept")).unwrap(), "kept");
    }

    #[test]
    fn what_is_too_large_or_too_deep_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        files::write(directory.path().join("large"), vec![1; 2 << 20]).unwrap();
        assert_eq!(clean(directory.path(), None, 1 << 20).unwrap_err().code(), ErrorCode::SetupDiskFull);
        let deep = (0..=SETUP_DEPTH_MAX).fold(directory.path().join("deep"), |path, _| path.join("d"));
        files::create_dir_all(deep).unwrap();
        assert_eq!(clean(directory.path(), None, 4 << 20).unwrap_err().code(), ErrorCode::SetupFailed);
    }
}
