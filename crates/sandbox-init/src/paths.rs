//! Opens the path that a caller names, below one of the roots and nowhere else. The kernel resolves the path in one
//! step (`openat2` with RESOLVE_BENEATH), so a concurrent rename cannot lead it outside.
//!
//! That call also refuses absolute links that lead back inside. For them the path is resolved without this restriction,
//! and the opened object must lie on the root's own mount. No object can move from one mount to another, so this cannot
//! be raced either.
//!
//! The kernel of gVisor has neither that call nor ids of mounts. There the path of the opened object must be below the root. Programs of the
//! sandbox can race this, and gain what they can open themselves.

mod names;

use super::service::Failure;
use domain::limits;
use rustix::{
    fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags},
    io::Errno,
};
use sandbox_wire::v1::FailureCode;
use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

/// The workspace, seen from inside.
pub(super) const WORKSPACE: &str = "/workspace";
/// Files can also be read below these directories: /tmp, and the kept output of tools.
const READABLE: [&str; 2] = ["/tmp", domain::session::OUTPUTS];
/// The kernel gives up on a path that is renamed concurrently; the init then tries again.
const RESOLVE_TRIES: u32 = 32;
/// Similar names that the error about a missing file suggests. Further ones are left out.
const SIMILAR_MAX: usize = 3;
/// Entries of the directory that are compared for them. Further ones are not looked at.
const SIMILAR_LOOKED_AT_MAX: usize = 2_000;

/// What a caller wants to do below a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

#[derive(Debug)]
pub(super) struct Root {
    path: &'static str,
    directory: OwnedFd,
    /// `None`: the kernel has no ids of mounts.
    mount: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Roots(Vec<Root>);

/// An object below a root, opened without access (O_PATH).
#[derive(Debug)]
pub(super) struct PathHandle {
    handle: OwnedFd,
    pub(super) stat: rustix::fs::Stat,
}

/// What a [`PathHandle`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Other,
}

impl Roots {
    /// Opens the roots that exist.
    pub(super) fn open() -> io::Result<Self> {
        let mut roots = vec![Root::open(WORKSPACE)?];
        roots.extend(READABLE.iter().filter_map(|path| Root::open(path).ok()));
        Ok(Self(roots))
    }

    /// Finds what `path` names; links are followed as long as they stay inside. Relative paths start at the workspace.
    pub(super) fn find(&self, path: &str, access: Access) -> Result<PathHandle, Failure> {
        let (root, rest) = self.split(path, access)?;
        let handle = root.resolve(rest).map_err(|errno| self.failure(errno, path))?;
        let stat = rustix::fs::fstat(&handle).map_err(|errno| self.failure(errno, path))?;
        Ok(PathHandle { handle, stat })
    }

    /// Returns the root of `path` and the rest of the path, which may be empty.
    pub(super) fn split<'a>(&self, path: &'a str, access: Access) -> Result<(&Root, &'a Path), Failure> {
        if path.len() > limits::PATH_BYTES_MAX || path.contains('\0') {
            return Err(Failure::new(FailureCode::PathInvalid, "the path is too long or has a zero byte"));
        }
        let path = Path::new(path);
        let outside = || {
            let text = format!("{} is outside the workspace; use paths below {WORKSPACE}", path.display());
            Failure::new(FailureCode::PathOutsideWorkspace, text)
        };
        if path.starts_with("~") {
            let text = format!(
                "{} is outside the workspace: files have no home directory; use paths below {WORKSPACE}",
                path.display()
            );
            return Err(Failure::new(FailureCode::PathOutsideWorkspace, text));
        }
        if path.is_relative() {
            return self.0.first().map(|root| (root, path)).ok_or_else(outside);
        }
        let mut roots = self.0.iter().filter(|root| access == Access::Read || root.path == WORKSPACE);
        roots.find_map(|root| Some((root, path.strip_prefix(root.path).ok()?))).ok_or_else(outside)
    }

    /// The error that the caller gets when `path` cannot be opened.
    pub(super) fn failure(&self, errno: Errno, path: &str) -> Failure {
        match errno {
            Errno::NOENT | Errno::NOTDIR => {
                let similar = self.similar(path);
                let hint = match similar.as_slice() {
                    [] => String::new(),
                    names => format!("; did you mean {}?", names.join(", ")),
                };
                Failure::new(FailureCode::FileNotFound, format!("there is no file {path}{hint}"))
            }
            Errno::XDEV => Failure::new(
                FailureCode::PathOutsideWorkspace,
                format!("{path} points outside the workspace"),
            ),
            Errno::LOOP => {
                Failure::new(FailureCode::PathInvalid, format!("{path} is a loop of symbolic links"))
            }
            Errno::NAMETOOLONG | Errno::INVAL => {
                Failure::new(FailureCode::PathInvalid, format!("{path} is not a valid path"))
            }
            Errno::ACCESS | Errno::PERM | Errno::ROFS => {
                Failure::new(FailureCode::FileNotPermitted, format!("permission denied for {path}"))
            }
            Errno::ISDIR => Failure::new(FailureCode::FileIsDirectory, format!("{path} is a directory")),
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
                Failure::new(FailureCode::DiskFull, "no space left in the workspace")
            }
            other => Failure::new(FailureCode::Internal, format!("open {path}: {other}")),
        }
    }

    /// Gives paths that differ from `path` in its first component that is not there, by a similar name.
    fn similar(&self, path: &str) -> Vec<String> {
        let path = Path::new(path);
        // The deepest directory that is there, and the component of the path that it lacks.
        for parent in path.ancestors().skip(1) {
            let Ok(found) = self.find(&parent.to_string_lossy(), Access::Read) else { continue };
            let (Ok(entries), Ok(rest)) = (found.entries(), path.strip_prefix(parent)) else {
                return Vec::new();
            };
            let mut rest = rest.components();
            let Some(missing) = rest.next() else { return Vec::new() };
            let missing = missing.as_os_str().to_string_lossy();
            let names = entries.into_iter().take(SIMILAR_LOOKED_AT_MAX).map(|entry| entry.0);
            let with_rest = |name: String| {
                let mut similar = parent.join(name);
                similar.extend(rest.clone());
                similar.to_string_lossy().into_owned()
            };
            return names::similar(&missing, names, SIMILAR_MAX).into_iter().map(with_rest).collect();
        }
        Vec::new()
    }
}

impl Root {
    fn open(path: &'static str) -> io::Result<Self> {
        let directory =
            rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mount = mount_of(&directory)?;
        Ok(Self { path, directory, mount })
    }

    /// Its path inside the sandbox.
    pub(super) fn path(&self) -> &'static str {
        self.path
    }

    /// Opens what `rest` names, without access.
    pub(super) fn resolve(&self, rest: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match self.openat2(rest, flags) {
            // XDEV: an absolute link, perhaps back inside. NOSYS: a kernel (gVisor) without openat2.
            Err(Errno::XDEV | Errno::NOSYS) => self.open_freely(rest, flags),
            other => other,
        }
    }

    /// Opens `rest` with `flags` strictly beneath the root, also on a kernel without openat2.
    pub(super) fn open_beneath(&self, rest: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        match self.openat2(rest, flags) {
            Err(Errno::NOSYS) => self.open_freely(rest, flags),
            other => other,
        }
    }

    /// Opens `rest` with `flags` strictly beneath the root.
    fn openat2(&self, rest: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let rest = or_itself(rest);
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut result = Err(Errno::AGAIN);
        for _ in 0..RESOLVE_TRIES {
            result = rustix::fs::openat2(&self.directory, rest, flags, Mode::empty(), how);
            if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        result
    }

    fn open_freely(&self, rest: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let handle = rustix::fs::openat(&self.directory, or_itself(rest), flags, Mode::empty())?;
        let is_inside = match self.mount {
            Some(mount) => mount_of(&handle)? == Some(mount),
            None => path_of(&handle).map_err(|_| Errno::XDEV)?.starts_with(self.path),
        };
        if is_inside { Ok(handle) } else { Err(Errno::XDEV) }
    }
}

/// The path of a root's own directory is empty.
fn or_itself(rest: &Path) -> &Path {
    if rest.as_os_str().is_empty() { Path::new(".") } else { rest }
}

impl PathHandle {
    pub(super) fn kind(&self) -> Kind {
        match rustix::fs::FileType::from_raw_mode(self.stat.st_mode) {
            rustix::fs::FileType::RegularFile => Kind::File,
            rustix::fs::FileType::Directory => Kind::Directory,
            _ => Kind::Other,
        }
    }

    /// Opens it to be read. Never waits: a FIFO without a writer opens at once.
    pub(super) fn open(&self) -> io::Result<File> {
        Ok(File::from(self.reopen(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?))
    }

    /// Opens it to be read, if it is a regular file; `path` is for the message.
    pub(super) fn open_file(&self, path: &str) -> Result<File, Failure> {
        match self.kind() {
            Kind::File => self.open().map_err(|error| {
                Failure::new(FailureCode::FileNotPermitted, format!("{path} cannot be read: {error}"))
            }),
            Kind::Directory => {
                Err(Failure::new(FailureCode::FileIsDirectory, format!("{path} is a directory")))
            }
            Kind::Other => {
                let text = format!("{path} is a pipe, a socket or a device, not a file");
                Err(Failure::new(FailureCode::FileNotRegular, text))
            }
        }
    }

    /// Its path now, without links.
    pub(super) fn path(&self) -> io::Result<PathBuf> {
        path_of(&self.handle)
    }

    /// Its size; bytes.
    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// The directory itself, to work in.
    pub(super) fn into_directory(self) -> io::Result<OwnedFd> {
        self.reopen(OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Names of a directory's entries, sorted, and whether each is a directory.
    pub(super) fn entries(&self) -> io::Result<Vec<(String, bool)>> {
        let directory = rustix::fs::Dir::new(self.reopen(OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        let mut entries = Vec::new();
        for entry in directory.take(limits::WALK_FILES_MAX) {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                entries.push((name, entry.file_type() == rustix::fs::FileType::Directory));
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn reopen(&self, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(by_number(&self.handle), flags | OFlags::CLOEXEC, Mode::empty())?)
    }
}

fn by_number(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// The path of an open object now, without links.
fn path_of(handle: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(by_number(handle))
}

/// The id of the mount of an open object; `None`: the kernel has none.
fn mount_of(handle: &OwnedFd) -> Result<Option<u64>, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statx(handle.as_fd(), "", flags, StatxFlags::MNT_ID)?;
    let has_id = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
    Ok(has_id.then_some(stat.stx_mnt_id))
}
