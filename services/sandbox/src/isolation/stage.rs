//! The stage: a directory in the child's own mount namespace, in which the service assembles the mounts of a sandbox. The sandbox's user
//! reaches them there, whatever directories they come from. The root of a sandbox is made there too: of layers, or of the machine's files.
//!
//! Bubblewrap reads the whole table of mounts once for each mount that it is told to make, so the service makes those of the root.

use super::root::{
    host::HostView,
    image::{BuildRoot, UPPER, WORK},
    mount::MountAccess,
};
use nix::{
    errno::Errno,
    fcntl::OFlag,
    mount::{MsFlags, mount},
    sys::stat::{Mode, umask},
};
use rustix::{
    fs::FileType,
    mount::{MoveMountFlags, OpenTreeFlags},
};
use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, OsString},
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

/// The directory. Bubblewrap needs /tmp to exist but none of its content.
const STAGE: &str = "/tmp";
const STAGE_C: &CStr = c"/tmp";
/// Where the root is made.
const ROOT: &str = "/tmp/root";
const ROOT_C: &CStr = c"/tmp/root";
/// The first number for descriptors that pass into bubblewrap, above those that the start itself opens and closes.
const DESCRIPTOR_FIRST: i32 = 50;
/// The attributes of what a sandbox only reads: no writes, no set-user-id programs, no devices.
const CLOSED: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const NONE: Option<&CStr> = None;

/// What the child mounts, opened before the fork.
#[derive(Debug, Default)]
pub(super) struct Stage {
    steps: Vec<Step>,
    /// The mounts that are not below the root.
    mounts: usize,
}

/// A place of the root for what bubblewrap mounts there.
#[derive(Debug)]
pub(super) struct MountPoint<'view> {
    pub(super) inside: &'view Path,
    pub(super) is_directory: bool,
}

/// One step of the child.
#[derive(Debug)]
enum Step {
    Directory(CString),
    /// Makes an empty file.
    File(CString),
    Link {
        target: CString,
        path: CString,
    },
    /// Mounts a copy of a mount. The mount's own path may lead through directories that only root may enter.
    Mount {
        copy: MountCopy,
        to: CString,
    },
    /// Joins layers at [`ROOT`].
    Overlay {
        options: CString,
        flags: MsFlags,
    },
    /// Mounts a file system in memory at [`ROOT`].
    Memory,
}

/// A copy of a mount, which is mounted nowhere yet.
#[derive(Debug)]
struct MountCopy {
    tree: OwnedFd,
    source: CString,
    flags: OpenTreeFlags,
    is_directory: bool,
    /// Whether it shares no events with its source.
    is_private: bool,
}

/// The steps that make a root of the machine's files.
#[derive(Debug, Default)]
struct MachineRoot {
    steps: Vec<Step>,
    /// What the file system in memory has.
    made: BTreeSet<PathBuf>,
    /// Where something is mounted. A mount point below exists in what is mounted there.
    mounted: Vec<PathBuf>,
}

impl Stage {
    /// Adds `source`, and gives its path on the stage.
    pub(super) fn add(&mut self, source: &Path) -> io::Result<PathBuf> {
        let to = PathBuf::from(format!("{STAGE}/{}", self.mounts));
        let copy = MountCopy::open(source, OpenTreeFlags::empty(), 0)?;
        let path = text(&to)?;
        self.steps.push(Step::point(path.clone(), copy.is_directory));
        self.steps.push(Step::Mount { copy, to: path });
        self.mounts += 1;
        Ok(to)
    }

    /// Joins at least two layers, lowest first, and gives the path of the result on the stage.
    pub(super) fn join(&mut self, layers: &[PathBuf]) -> io::Result<PathBuf> {
        let options = self.lower(layers)?;
        self.overlay(options, MsFlags::MS_RDONLY)
    }

    /// The same, below a directory that takes all changes.
    pub(super) fn join_for_build(&mut self, root: &BuildRoot) -> io::Result<PathBuf> {
        let lower = self.lower(&root.layers)?;
        let changes = self.add(&root.directory)?;
        let (upper, work) = (changes.join(UPPER), changes.join(WORK));
        let options = format!("{lower},upperdir={},workdir={}", upper.display(), work.display());
        self.overlay(options, MsFlags::empty())
    }

    /// Makes a root of the machine's files, with a mount point for each of `points`, and gives its path on the stage.
    pub(super) fn assemble(&mut self, view: &HostView, points: &[MountPoint<'_>]) -> io::Result<PathBuf> {
        let mut root = MachineRoot::default();
        for link in &view.links {
            root.parents(&link.inside)?;
            root.made.insert(link.inside.clone());
            root.steps.push(Step::Link { target: text(&link.target)?, path: below_root(&link.inside)? });
        }
        for mount in &view.mounts {
            let reach = match mount.access {
                MountAccess::ReadAll => OpenTreeFlags::AT_RECURSIVE,
                MountAccess::Read | MountAccess::ReadIfPresent | MountAccess::Write => OpenTreeFlags::empty(),
            };
            let copy = match MountCopy::open(&mount.source, reach, CLOSED) {
                Err(error) if mount.may_lack(&error) => continue,
                copy => copy?,
            };
            root.point(&MountPoint { inside: &mount.inside, is_directory: copy.is_directory })?;
            root.steps.push(Step::Mount { copy, to: below_root(&mount.inside)? });
        }
        points.iter().try_for_each(|place| root.point(place))?;
        self.steps.extend([Step::Directory(ROOT_C.to_owned()), Step::Memory]);
        self.steps.append(&mut root.steps);
        Ok(PathBuf::from(ROOT))
    }

    fn lower(&mut self, layers: &[PathBuf]) -> io::Result<String> {
        // The kernel wants the highest first. Paths of the stage have no character that would need an escape.
        let staged = layers.iter().rev().map(|layer| self.add(layer)).collect::<io::Result<Vec<_>>>()?;
        let lower: Vec<String> = staged.iter().map(|path| path.display().to_string()).collect();
        Ok(format!("userxattr,lowerdir={}", lower.join(":")))
    }

    fn overlay(&mut self, options: String, flags: MsFlags) -> io::Result<PathBuf> {
        let options = CString::new(options)?;
        self.steps.extend([Step::Directory(ROOT_C.to_owned()), Step::Overlay { options, flags }]);
        Ok(PathBuf::from(ROOT))
    }

    /// Builds the stage in a mount namespace that only the calling process has. It makes only system calls, and takes no mount away: the kernel would let
    /// the child sleep, and the next start waits for it.
    pub(super) fn build(&self) -> io::Result<()> {
        mount(NONE, c"/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
        memory(STAGE_C)?;
        // The sandbox's user passes through the directories.
        let mask = umask(Mode::empty());
        self.steps.iter().try_for_each(Step::make)?;
        umask(mask);
        Ok(())
    }
}

impl MachineRoot {
    /// Makes a mount point, unless an earlier mount has it.
    fn point(&mut self, place: &MountPoint<'_>) -> io::Result<()> {
        let MountPoint { inside, is_directory } = *place;
        let is_there = self.mounted.iter().any(|mounted| inside.starts_with(mounted));
        self.mounted.push(inside.to_owned());
        if is_there {
            return Ok(());
        }
        self.parents(inside)?;
        if self.made.insert(inside.to_owned()) {
            self.steps.push(Step::point(below_root(inside)?, is_directory));
        }
        Ok(())
    }

    /// Makes the directories that lead to `inside`.
    fn parents(&mut self, inside: &Path) -> io::Result<()> {
        let mut parents: Vec<&Path> = inside.ancestors().skip(1).collect();
        parents.reverse();
        // The first is `/`.
        for parent in parents.into_iter().skip(1) {
            if self.made.insert(parent.to_owned()) {
                self.steps.push(Step::Directory(below_root(parent)?));
            }
        }
        Ok(())
    }
}

impl Step {
    /// The step that makes a mount point.
    fn point(path: CString, is_directory: bool) -> Self {
        if is_directory { Self::Directory(path) } else { Self::File(path) }
    }

    /// It makes only system calls.
    fn make(&self) -> io::Result<()> {
        match self {
            Self::Directory(path) => nix::unistd::mkdir(path.as_c_str(), Mode::from_bits_truncate(0o755))?,
            Self::File(path) => {
                let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
                drop(nix::fcntl::open(path.as_c_str(), flags, Mode::from_bits_truncate(0o644))?);
            }
            Self::Link { target, path } => rustix::fs::symlink(target.as_c_str(), path.as_c_str())?,
            Self::Mount { copy, to } => copy.mount(to)?,
            Self::Overlay { options, flags } => {
                let flags = *flags | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
                mount(Some(c"overlay"), ROOT_C, Some(c"overlay"), flags, Some(options.as_c_str()))?;
            }
            Self::Memory => memory(ROOT_C)?,
        }
        Ok(())
    }
}

impl MountCopy {
    /// Copies the mount at `source`, or the part of it that is there. `reach` says whether the copy has what is mounted below. All of it gets
    /// `attributes`.
    fn open(source: &Path, reach: OpenTreeFlags, attributes: u64) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | reach;
        // An ordinary descriptor does not work: one from another mount namespace cannot be bound.
        let source = text(source)?;
        let tree = keep(rustix::mount::open_tree(rustix::fs::CWD, source.as_c_str(), flags)?)?;
        let is_directory = FileType::from_raw_mode(rustix::fs::fstat(&tree)?.st_mode).is_dir();
        // A copy shares events with its source: what the child mounts on it would appear on the machine. Linux 5.11, and a container that refuses
        // the call, leave that to the child, and the attributes to bubblewrap, which sets them for each mount that lacks them.
        let is_private = match make_private(&tree, attributes) {
            Err(Errno::ENOSYS | Errno::EPERM) => false,
            made => made.map(|()| true)?,
        };
        Ok(Self { tree, source, flags, is_directory, is_private })
    }

    /// Mounts the copy. It makes only system calls.
    fn mount(&self, to: &CStr) -> io::Result<()> {
        let is_private = match attach(&self.tree, to) {
            // The machine has replaced the file since it was opened, as `ldconfig` does. Bubblewrap makes the new one read-only.
            Err(rustix::io::Errno::NOENT) => {
                let new = rustix::mount::open_tree(rustix::fs::CWD, self.source.as_c_str(), self.flags)?;
                attach(&new, to)?;
                false
            }
            attached => attached.map(|()| self.is_private)?,
        };
        if !is_private {
            mount(NONE, to, NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
        }
        Ok(())
    }
}

fn attach(tree: &OwnedFd, to: &CStr) -> rustix::io::Result<()> {
    let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", rustix::fs::CWD, to, whole)
}

/// The path of the stage for a path of the sandbox.
fn below_root(inside: &Path) -> io::Result<CString> {
    let mut path = OsString::from(ROOT);
    path.push(inside);
    text(Path::new(&path))
}

fn text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_encoded_bytes())?)
}

/// Mounts a file system in memory, for mount points and links.
fn memory(path: &CStr) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some(c"tmpfs"), path, Some(c"tmpfs"), flags, Some(c"mode=755,size=64k"))?)
}

/// Takes a copy of mounts out of all propagation, and adds attributes to them.
#[allow(unsafe_code)] // No wrapper offers mount_setattr.
fn make_private(tree: &OwnedFd, attributes: u64) -> nix::Result<()> {
    // `struct mount_attr`: what to set, what to clear, the propagation, and a user namespace.
    let change: [u64; 4] = [attributes, 0, libc::MS_PRIVATE, 0];
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the kernel reads the empty path, and as many bytes of the change as there are.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            change.as_ptr(),
            size_of_val(&change),
        )
    };
    Errno::result(result).map(drop)
}

/// Moves a descriptor to a high number. It closes on exec until the child clears the flag.
pub(super) fn keep(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, DESCRIPTOR_FIRST)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use std::fs;

    #[test]
    fn a_file_that_is_replaced_after_it_was_opened_is_mounted_as_it_is_then() {
        if !nix::unistd::geteuid().is_root() {
            return testkit::left_out::skip("only root may mount");
        }
        // The stage covers /tmp.
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let (path, new) = (directory.path().join("ld.so.cache"), directory.path().join("new"));
        fs::write(&path, "one").unwrap();
        let mut stage = Stage::default();
        let staged = stage.add(&path).unwrap();
        fs::write(&new, "two").unwrap();
        fs::rename(&new, &path).unwrap();
        // The mounts of a thread end with it.
        let read = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            stage.build().unwrap();
            fs::read_to_string(staged).unwrap()
        });
        assert_eq!(read.join().unwrap(), "two");
    }
}
