//! The directory of a layer while it is filled. Every path is resolved below the directory by the kernel, without following a link, so no
//! entry reaches anything outside.

use crate::refusal::Refusal;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Read, Write as _},
};

/// The attribute that hides everything below the same directory of lower layers. A user may set it, and overlayfs reads it with `userxattr`.
const OPAQUE: &str = "user.overlay.opaque";
/// What a file in the layer may at most be.
const PERMISSIONS: u32 = 0o777;
/// What every user may do with a directory, and with a file.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o444;

#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    /// The parent of the newest entry: archives list directories one after another.
    parent: Option<(Vec<u8>, OwnedFd)>,
}

/// The place of an entry: its parent directory, which exists, and its name there.
struct EntryPath<'a> {
    parent: BorrowedFd<'a>,
    name: &'a [u8],
    path: &'a [u8],
}

/// The content of a file.
pub(crate) struct Content<'a> {
    pub(crate) bytes: &'a mut dyn Read,
    pub(crate) mode: u32,
    /// Modification time; seconds since 1970. Programs compare it with that of what they made of the file.
    pub(crate) modified_s: i64,
    /// Bytes that may be written. A file with more is `layer_too_large` in the end.
    pub(crate) most_bytes: u64,
}

impl Tree {
    /// Opens the directory, which must exist.
    pub(crate) fn open(path: &std::path::Path) -> io::Result<Self> {
        let root =
            fs::openat(CWD, path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root, parent: None })
    }

    pub(crate) fn make_directory(&mut self, path: &[u8], mode: u32) -> Result<(), Refusal> {
        if path.is_empty() {
            return Ok(());
        }
        let place = self.place(path)?;
        let mode = Mode::from_raw_mode((mode & PERMISSIONS) | DIRECTORY_MODE);
        let hides = match place.kind()? {
            None => {
                fs::mkdirat(place.parent, place.name, mode).map_err(|error| place.failed(error))?;
                false
            }
            Some(FileType::Directory) => false,
            Some(kind) => {
                place.remove()?;
                fs::mkdirat(place.parent, place.name, mode).map_err(|error| place.failed(error))?;
                // A whiteout and a directory: the directory of this layer replaces that of lower ones.
                kind == FileType::CharacterDevice
            }
        };
        let directory = place.open(OFlags::DIRECTORY | OFlags::RDONLY)?;
        // Whatever the mask of this process is.
        fs::fchmod(&directory, mode).map_err(|error| place.failed(error))?;
        if hides { set_opaque(&directory).map_err(|error| place.failed(error)) } else { Ok(()) }
    }

    /// Writes a file, and returns its bytes.
    pub(crate) fn write_file(&mut self, path: &[u8], content: Content<'_>) -> Result<u64, Refusal> {
        let place = self.place(path)?;
        place.clear()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::from_raw_mode((content.mode & PERMISSIONS) | FILE_MODE);
        let mut file = File::from(place.open(flags)?);
        let mut bytes = content.bytes.take(content.most_bytes.saturating_add(1));
        let written = copy(&mut bytes, &mut file).map_err(|failure| match failure {
            Failure::Read(error) => Refusal::Unreadable(error),
            Failure::Write(error) => Refusal::Write { path: shown(path), source: error },
        })?;
        let time = Timespec { tv_sec: content.modified_s, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        fs::futimens(&file, &times).map_err(|error| place.failed(error))?;
        fs::fchmod(&file, mode).map_err(|error| place.failed(error))?;
        Ok(written)
    }

    pub(crate) fn link_to(&mut self, path: &[u8], target: &[u8]) -> Result<(), Refusal> {
        let place = self.place(path)?;
        place.clear()?;
        fs::symlinkat(target, place.parent, place.name).map_err(|error| place.failed(error))
    }

    /// Gives a file of this layer a second name.
    pub(crate) fn link_again(&mut self, path: &[u8], target: &[u8]) -> Result<(), Refusal> {
        let (target_parent, target_name) = split(target);
        let missing = |_| Refusal::Contradiction {
            path: shown(path),
            reason: "its hard link names no file of the layer",
        };
        let target_parent = self.open_directory(target_parent).map_err(missing)?;
        let place = self.place(path)?;
        if place.is_same(&target_parent, target_name) {
            return Ok(());
        }
        let kind = kind_of(target_parent.as_fd(), target_name).map_err(missing)?;
        if kind != Some(FileType::RegularFile) && kind != Some(FileType::Symlink) {
            return Err(missing(Errno::NOENT));
        }
        place.clear()?;
        fs::linkat(&target_parent, target_name, place.parent, place.name, AtFlags::empty())
            .map_err(|error| place.failed(error))
    }

    /// Hides a name of lower layers. An entry of this layer with the same name stays.
    pub(crate) fn white_out(&mut self, path: &[u8]) -> Result<(), Refusal> {
        let place = self.place(path)?;
        match place.kind()? {
            None => {
                let mode = Mode::from_raw_mode(0o444);
                fs::mknodat(place.parent, place.name, FileType::CharacterDevice, mode, 0)
                    .map_err(|error| place.failed(error))
            }
            Some(FileType::Directory) => {
                let directory = place.open(OFlags::DIRECTORY | OFlags::RDONLY)?;
                set_opaque(&directory).map_err(|error| place.failed(error))
            }
            Some(_) => Ok(()),
        }
    }

    /// Hides everything below the same directory of lower layers.
    pub(crate) fn make_opaque(&mut self, directory: &[u8]) -> Result<(), Refusal> {
        self.make_directory(directory, DIRECTORY_MODE)?;
        let failed = |error: Errno| Refusal::Write { path: shown(directory), source: error.into() };
        let directory = self.open_directory(directory).map_err(failed)?;
        set_opaque(&directory).map_err(failed)
    }

    /// The place of a path; makes its missing parents.
    fn place<'a>(&'a mut self, path: &'a [u8]) -> Result<EntryPath<'a>, Refusal> {
        let (directory, name) = split(path);
        if self.parent.as_ref().is_none_or(|(known, _)| known != directory) {
            let parent = match self.open_directory(directory) {
                Err(Errno::NOENT) => {
                    self.make_directory(directory, DIRECTORY_MODE)?;
                    self.open_directory(directory)
                }
                opened => opened,
            };
            let parent = parent.map_err(|error| match error {
                Errno::LOOP | Errno::NOTDIR => {
                    Refusal::Path { path: shown(path), reason: "a parent of it is no directory of the layer" }
                }
                error => Refusal::Write { path: shown(path), source: error.into() },
            })?;
            self.parent = Some((directory.to_vec(), parent));
        }
        let parent = self.parent.as_ref().map_or(self.root.as_fd(), |(_, parent)| parent.as_fd());
        Ok(EntryPath { parent, name, path })
    }

    fn open_directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        fs::openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
    }
}

impl EntryPath<'_> {
    fn kind(&self) -> Result<Option<FileType>, Refusal> {
        kind_of(self.parent, self.name).map_err(|error| self.failed(error))
    }

    /// Removes an earlier entry with this name. Only a directory stays, and is refused.
    fn clear(&self) -> Result<(), Refusal> {
        match self.kind()? {
            None => Ok(()),
            Some(FileType::Directory) => Err(Refusal::Contradiction {
                path: shown(self.path),
                reason: "it is a directory, and an entry after it says otherwise",
            }),
            Some(_) => self.remove(),
        }
    }

    fn remove(&self) -> Result<(), Refusal> {
        fs::unlinkat(self.parent, self.name, AtFlags::empty()).map_err(|error| self.failed(error))
    }

    fn open(&self, flags: OFlags) -> Result<OwnedFd, Refusal> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(self.parent, self.name, flags, Mode::from_raw_mode(0o600))
            .map_err(|error| self.failed(error))
    }

    fn is_same(&self, parent: &OwnedFd, name: &[u8]) -> bool {
        let identity = |directory: BorrowedFd<'_>, name: &[u8]| {
            let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some((stat.st_dev, stat.st_ino))
        };
        identity(self.parent, self.name).is_some_and(|own| identity(parent.as_fd(), name) == Some(own))
    }

    fn failed(&self, error: Errno) -> Refusal {
        match error {
            Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => {
                Refusal::Path { path: shown(self.path), reason: "the file system refuses the name" }
            }
            error => Refusal::Write { path: shown(self.path), source: error.into() },
        }
    }
}

enum Failure {
    Read(io::Error),
    Write(io::Error),
}

/// Copies, and tells a failed read from a failed write.
fn copy(from: &mut impl Read, to: &mut File) -> Result<u64, Failure> {
    let (mut buffer, mut total) = (vec![0; 128 * 1024], 0);
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::Read(error)),
        };
        to.write_all(&buffer[..count]).map_err(Failure::Write)?;
        total += count as u64;
    }
}

fn kind_of(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileType>, Errno> {
    match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn set_opaque(directory: &OwnedFd) -> Result<(), Errno> {
    fs::fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())
}

/// The directory of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// A path for people.
pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
