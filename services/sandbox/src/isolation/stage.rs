//! The stage: a directory in the child's own mount namespace, in which the service assembles the mounts of a sandbox. The sandbox's user
//! reaches them there, whatever directories they come from. A root of layers is made there too.

use super::root::image::{BuildRoot, UPPER, WORK};
use nix::mount::{MsFlags, mount};
use rustix::mount::{MoveMountFlags, OpenTreeFlags};
use std::{
    ffi::{CStr, CString},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// The directory. Bubblewrap needs /tmp to exist but none of its content.
const STAGE: &str = "/tmp";
const STAGE_C: &CStr = c"/tmp";
/// Where the layers are joined.
const ROOT: &str = "/tmp/root";
const ROOT_C: &CStr = c"/tmp/root";
/// The first number for descriptors that pass into bubblewrap, above those that the start itself opens and closes.
const DESCRIPTOR_FIRST: i32 = 50;

/// What the child mounts, opened before the fork.
#[derive(Debug, Default)]
pub(super) struct Stage {
    mounts: Vec<StagedMount>,
    /// How the layers among the mounts become a root.
    overlay: Option<StagedRoot>,
}

/// A root of layers.
#[derive(Debug)]
struct StagedRoot {
    /// The options of overlayfs.
    options: CString,
    is_writable: bool,
}

/// A copy of a mount. The mount's own path may lead through directories that only root may enter.
#[derive(Debug)]
struct StagedMount {
    source: OwnedFd,
    /// Below [`STAGE`].
    to: CString,
    is_directory: bool,
}

impl Stage {
    /// Adds `source`, and gives its path on the stage.
    pub(super) fn add(&mut self, source: &Path) -> io::Result<PathBuf> {
        let to = PathBuf::from(format!("{STAGE}/{}", self.mounts.len()));
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        // An ordinary descriptor does not work: one from another mount namespace cannot be bound.
        let tree = rustix::mount::open_tree(rustix::fs::CWD, source, flags)?;
        let is_directory = source.metadata()?.is_dir();
        let path = CString::new(to.as_os_str().as_encoded_bytes())?;
        self.mounts.push(StagedMount { source: keep(tree)?, to: path, is_directory });
        Ok(to)
    }

    /// Joins at least two layers, lowest first, and gives the path of the result on the stage.
    pub(super) fn join(&mut self, layers: &[PathBuf]) -> io::Result<PathBuf> {
        let options = self.lower(layers)?;
        self.overlay = Some(StagedRoot { options: CString::new(options)?, is_writable: false });
        Ok(PathBuf::from(ROOT))
    }

    /// The same, below a directory that takes all changes.
    pub(super) fn join_for_build(&mut self, root: &BuildRoot) -> io::Result<PathBuf> {
        let lower = self.lower(&root.layers)?;
        let changes = self.add(&root.directory)?;
        let (upper, work) = (changes.join(UPPER), changes.join(WORK));
        let options = format!("{lower},upperdir={},workdir={}", upper.display(), work.display());
        self.overlay = Some(StagedRoot { options: CString::new(options)?, is_writable: true });
        Ok(PathBuf::from(ROOT))
    }

    fn lower(&mut self, layers: &[PathBuf]) -> io::Result<String> {
        // The kernel wants the highest first. Paths of the stage have no character that would need an escape.
        let staged = layers.iter().rev().map(|layer| self.add(layer)).collect::<io::Result<Vec<_>>>()?;
        let lower: Vec<String> = staged.iter().map(|path| path.display().to_string()).collect();
        Ok(format!("userxattr,lowerdir={}", lower.join(":")))
    }

    /// Builds the stage in a mount namespace that only the calling process has. It makes only system calls.
    pub(super) fn build(&self) -> io::Result<()> {
        const NONE: Option<&CStr> = None;
        mount(NONE, c"/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some(c"tmpfs"), STAGE_C, Some(c"tmpfs"), flags, Some(c"mode=755,size=64k"))?;
        for staged in &self.mounts {
            staged.attach()?;
        }
        if let Some(StagedRoot { options, is_writable }) = &self.overlay {
            nix::unistd::mkdir(ROOT_C, nix::sys::stat::Mode::S_IRWXU)?;
            let flags = if *is_writable { flags } else { flags | MsFlags::MS_RDONLY };
            mount(Some(c"overlay"), ROOT_C, Some(c"overlay"), flags, Some(options.as_c_str()))?;
        }
        Ok(())
    }
}

impl StagedMount {
    fn attach(&self) -> io::Result<()> {
        use nix::{fcntl::OFlag, sys::stat::Mode};
        if self.is_directory {
            nix::unistd::mkdir(self.to.as_c_str(), Mode::S_IRWXU)?;
        } else {
            drop(nix::fcntl::open(self.to.as_c_str(), OFlag::O_CREAT | OFlag::O_CLOEXEC, Mode::S_IRUSR)?);
        }
        let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(rustix::mount::move_mount(&self.source, c"", rustix::fs::CWD, self.to.as_c_str(), whole)?)
    }
}

/// Moves a descriptor to a high number. It closes on exec until the child clears the flag.
pub(super) fn keep(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, DESCRIPTOR_FIRST)?)
}
