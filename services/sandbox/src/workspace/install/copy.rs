//! Copies a tree that a hostile program may have written, but that no program changes any more. It follows no link on either side, and copies nothing but
//! directories, files and links.

use crate::error::Error;
use rpc::v1::ErrorCode;
use rustix::{
    fs::{self, AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid},
    io::Errno,
};
use std::{
    collections::{HashMap, HashSet},
    ffi::CStr,
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

/// Directories within each other in what an install leaves. Beyond it: `install_failed`.
const INSTALL_DEPTH_MAX: usize = 64;
/// How a directory is opened.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// What everybody may do with the copies, as with layers.
const READABLE: u32 = 0o444;
/// What the owner may do with a directory: the copy goes on in it.
const OWN_DIRECTORY: u32 = 0o700;
/// The bits of a mode that are copied: not those that give the rights of another user.
const BITS: u32 = 0o777;

/// A copy of a tree.
pub(in crate::workspace) struct TreeCopy<'a> {
    /// Who owns the copies; `None`: the service's own user.
    pub(in crate::workspace) owner: Option<u32>,
    /// Paths that are not copied, as in a listing. A directory among them is copied if it has something else.
    pub(in crate::workspace) without: &'a HashSet<Vec<u8>>,
    /// Bytes of all files at most, also of those that take less on the disk.
    pub(in crate::workspace) bytes_max: u64,
    /// Looks at the disk of the machine now and then.
    pub(in crate::workspace) check: &'a dyn Fn() -> Result<(), Error>,
}

/// What was copied.
#[derive(Debug, Default)]
pub(in crate::workspace) struct Copied {
    /// Bytes of all files.
    pub(in crate::workspace) bytes: u64,
    /// Files, directories and links.
    pub(in crate::workspace) entries: u64,
    /// Where the copies are among files that were there before: the topmost paths, those of directories with a slash at their end.
    pub(in crate::workspace) places: Vec<Vec<u8>>,
}

/// A directory that is being copied.
struct Level {
    from: Dir,
    into: OwnedFd,
    /// Its path below the tree, with a slash at its end.
    path: Vec<u8>,
    /// Whether this copy made it.
    is_made: bool,
}

/// The walk of a copy.
struct Walk<'a> {
    copy: &'a TreeCopy<'a>,
    root: OwnedFd,
    copied: Copied,
    /// Files with several names, with the path of their copy.
    links: HashMap<u64, Vec<u8>>,
}

impl TreeCopy<'_> {
    /// Copies everything below `from` into `into`, where nothing that exists is changed. Blocks.
    ///
    /// # Errors
    /// `install_failed` if it is too deep, that of the check; those of the file system.
    pub(in crate::workspace) fn run(&self, from: &Path, into: &Path) -> Result<Copied, Error> {
        let copied = self.copy(from, into);
        copied.map_err(|error| match error.downcast::<Error>() {
            Ok(refusal) => refusal,
            Err(error) => Error::io("copy what was installed")(error),
        })
    }

    fn copy(&self, from: &Path, into: &Path) -> io::Result<Copied> {
        let from = Dir::new(fs::open(from, DIRECTORY, Mode::empty())?)?;
        let root = fs::open(into, DIRECTORY, Mode::empty())?;
        let first = Level { from, into: root.try_clone()?, path: vec![], is_made: false };
        let mut walk = Walk { copy: self, root, copied: Copied::default(), links: HashMap::new() };
        let mut levels = vec![first];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.from.read() else {
                walk.leave(&mut levels);
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            // What git has is not installed.
            if name == c"." || name == c".." || name == c".git" {
                continue;
            }
            let Some(below) = walk.entry(level, name)? else { continue };
            if levels.len() >= INSTALL_DEPTH_MAX {
                let text =
                    format!("the install left more than {INSTALL_DEPTH_MAX} directories within each other");
                return Err(io::Error::other(Error::refused(ErrorCode::InstallFailed, text)));
            }
            levels.push(below);
        }
        Ok(walk.copied)
    }
}

impl Walk<'_> {
    /// Copies one entry. Returns a directory, whose entries come next.
    fn entry(&mut self, level: &Level, name: &CStr) -> io::Result<Option<Level>> {
        let above = level.from.fd()?;
        let stat = fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let path = [level.path.as_slice(), name.to_bytes()].concat();
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            return self.directory(level, name, path, &stat);
        }
        if self.copy.without.contains(&path) {
            return Ok(None);
        }
        let made = match kind {
            FileType::RegularFile => self.file(level, name, &path, &stat),
            FileType::Symlink => self.symbolic_link(level, name),
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Ok(None),
        };
        match made {
            Ok(()) => self.count(level, path),
            // The repository has it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }?;
        Ok(None)
    }

    fn directory(
        &mut self,
        level: &Level,
        name: &CStr,
        path: Vec<u8>,
        stat: &Stat,
    ) -> io::Result<Option<Level>> {
        let from = match fs::openat(level.from.fd()?, name, DIRECTORY, Mode::empty()) {
            // Its owner closed it, and this service is not root.
            Err(Errno::ACCESS) => return Ok(None),
            opened => Dir::new(opened?)?,
        };
        let path = [path.as_slice(), b"/"].concat();
        let is_made = match fs::mkdirat(&level.into, name, Mode::from_raw_mode(OWN_DIRECTORY)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let into = match fs::openat(&level.into, name, DIRECTORY, Mode::empty()) {
            Ok(into) => into,
            // The repository has a file or a link there.
            Err(Errno::NOTDIR | Errno::LOOP) if !is_made => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if is_made {
            self.own(into.as_fd(), stat.st_mode | OWN_DIRECTORY | 0o055)?;
            if !self.copy.without.contains(&path) {
                self.count(level, path.clone())?;
            }
        }
        Ok(Some(Level { from, into, path, is_made }))
    }

    /// A directory that was there before the install is only copied for what is in it.
    fn leave(&self, levels: &mut Vec<Level>) {
        let Some(level) = levels.pop() else { return };
        let Some(above) = levels.last() else { return };
        if level.is_made && self.copy.without.contains(&level.path) {
            let name =
                level.path.strip_suffix(b"/").and_then(|path| path.rsplit(|byte| *byte == b'/').next());
            fs::unlinkat(&above.into, name.unwrap_or_default(), AtFlags::REMOVEDIR).ok();
        }
    }

    fn file(&mut self, level: &Level, name: &CStr, path: &[u8], stat: &Stat) -> io::Result<()> {
        if let Some(first) = self.links.get(&stat.st_ino) {
            return Ok(fs::linkat(&self.root, first.as_slice(), &level.into, name, AtFlags::empty())?);
        }
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut from = match fs::openat(level.from.fd()?, name, read, Mode::empty()) {
            Err(Errno::ACCESS) => return Ok(()),
            opened => File::from(opened?),
        };
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if self.copied.bytes.saturating_add(size) > self.copy.bytes_max {
            let text = format!("the files of the install have more than {} bytes", self.copy.bytes_max);
            return Err(io::Error::other(Error::refused(ErrorCode::InstallDiskFull, text)));
        }
        let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut into = File::from(fs::openat(&level.into, name, write, Mode::RUSR | Mode::WUSR)?);
        // The kernel shares the blocks where the file system can.
        self.copied.bytes += io::copy(&mut from, &mut into)?;
        self.own(into.as_fd(), stat.st_mode | READABLE)?;
        if stat.st_nlink > 1 {
            self.links.insert(stat.st_ino, path.to_vec());
        }
        Ok(())
    }

    fn symbolic_link(&self, level: &Level, name: &CStr) -> io::Result<()> {
        let target = fs::readlinkat(level.from.fd()?, name, vec![])?;
        fs::symlinkat(&target, &level.into, name)?;
        if let Some(owner) = self.copy.owner {
            let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
            fs::chownat(&level.into, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// Gives a copy to its owner.
    fn own(&self, file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
        if let Some(owner) = self.copy.owner {
            fs::fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
        }
        Ok(fs::fchmod(file, Mode::from_raw_mode(mode & BITS))?)
    }

    fn count(&mut self, level: &Level, path: Vec<u8>) -> io::Result<()> {
        self.copied.entries += 1;
        if !level.is_made {
            self.copied.places.push(path);
        }
        if self.copied.entries.is_multiple_of(256) {
            (self.copy.check)().map_err(io::Error::other)?;
        }
        Ok(())
    }
}
