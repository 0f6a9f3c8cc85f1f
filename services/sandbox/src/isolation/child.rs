//! What the child does between fork and exec of bubblewrap: it sets limits, makes a mount namespace in which the sandbox's
//! user can reach its mounts, and changes to that user. It makes only system calls and allocates nothing: other threads of
//! the service may hold any lock at that moment.
//!
//! The next start waits until this one has come to its exec. Therefore the child yields the processors in its last step, and comes
//! into its control group afterwards: in the group of a busy tenant it would wait for a turn of that tenant.

use super::priority;
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::resource::{Resource, setrlimit},
    unistd::{Gid, Uid, setgroups, setresgid, setresuid, setsid},
};
use rustix::mount::{MoveMountFlags, OpenTreeFlags};
use std::{
    ffi::{CStr, CString},
    io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::Path,
    process::Command,
};

/// The directory in which the mounts of the sandbox are assembled. Bubblewrap needs /tmp to exist but none of its
/// content.
pub(super) const STAGE: &str = "/tmp";
const STAGE_C: &CStr = c"/tmp";
/// The first number for descriptors that pass into bubblewrap, above those that the start itself opens and closes.
const DESCRIPTOR_FIRST: i32 = 50;
/// Files that one process of a sandbox may have open. Opening another one fails in the process.
const OPEN_FILES_MAX: u64 = 4_096;
/// Bytes of memory that one process of a sandbox may lock. Locking more fails in the process.
const LOCKED_MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// A copy of a mount for the stage. The mount's own path may lead through directories that only root may enter.
#[derive(Debug)]
pub(super) struct StagedMount {
    source: OwnedFd,
    /// Below [`STAGE`].
    to: CString,
    is_directory: bool,
}

/// Everything that the child needs, made before the fork.
#[derive(Debug)]
pub(super) struct ChildSetup {
    /// `None`: the child keeps the service's mount namespace.
    pub(super) stage: Option<Vec<StagedMount>>,
    /// Open in bubblewrap; everything else from 3 on is closed.
    pub(super) kept: Vec<OwnedFd>,
    /// `None`: the service's own.
    pub(super) uid: Option<u32>,
    /// Largest file; bytes.
    pub(super) file_bytes_max: u64,
}

impl ChildSetup {
    /// Makes `command` do all this before its program starts.
    #[allow(unsafe_code)] // `pre_exec` is unsafe because of what its closure may not do; `apply` keeps to it.
    pub(super) fn prepare(self, command: &mut Command) {
        // SAFETY: `apply` makes system calls on values that exist already; it neither allocates nor locks.
        unsafe { command.pre_exec(move || self.apply()) };
    }

    fn apply(&self) -> io::Result<()> {
        limit(Resource::RLIMIT_NOFILE, OPEN_FILES_MAX)?;
        limit(Resource::RLIMIT_CORE, 0)?;
        limit(Resource::RLIMIT_FSIZE, self.file_bytes_max)?;
        limit(Resource::RLIMIT_MEMLOCK, LOCKED_MEMORY_BYTES_MAX)?;
        limit(Resource::RLIMIT_NICE, 0)?;
        limit(Resource::RLIMIT_RTPRIO, 0)?;
        close_on_exec_from_3()?;
        if let Some(stage) = &self.stage {
            build(stage)?;
        }
        if let Some(uid) = self.uid {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
            setgroups(&[])?;
            setresgid(gid, gid, gid)?;
            setresuid(uid, uid, uid)?;
        }
        // Fails only for the leader of a process group, which a fresh child is not.
        setsid()?;
        for fd in &self.kept {
            nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
        }
        // A sandbox without it works as well. The self-test reports the nice value inside.
        priority::lower().ok();
        Ok(())
    }
}

/// Lowers a limit; a limit that is already lower stays.
fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let (_, hard) = nix::sys::resource::getrlimit(resource)?;
    let value = value.min(hard);
    Ok(setrlimit(resource, value, value)?)
}

#[allow(unsafe_code)] // No wrapper offers CLOSE_RANGE_CLOEXEC.
fn close_on_exec_from_3() -> io::Result<()> {
    // SAFETY: it sets a flag on descriptors and touches no memory.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Ok(Errno::result(result).map(drop)?)
}

/// Moves a descriptor to a high number. It closes on exec until the child clears the flag.
pub(super) fn keep(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, DESCRIPTOR_FIRST)?)
}

fn build(stage: &[StagedMount]) -> io::Result<()> {
    const NONE: Option<&CStr> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, c"/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    mount(
        Some(c"tmpfs"),
        STAGE_C,
        Some(c"tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some(c"mode=755,size=64k"),
    )?;
    for staged in stage {
        if staged.is_directory {
            nix::unistd::mkdir(staged.to.as_c_str(), nix::sys::stat::Mode::S_IRWXU)?;
        } else {
            use nix::{fcntl::OFlag, sys::stat::Mode};
            drop(nix::fcntl::open(staged.to.as_c_str(), OFlag::O_CREAT | OFlag::O_CLOEXEC, Mode::S_IRUSR)?);
        }
        let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&staged.source, c"", rustix::fs::CWD, staged.to.as_c_str(), whole)?;
    }
    Ok(())
}

impl StagedMount {
    /// Prepares `source` to appear as [`STAGE`]`/name`.
    pub(super) fn new(source: &Path, name: &str) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        // An ordinary descriptor does not work: one from another mount namespace cannot be bound.
        let tree = rustix::mount::open_tree(rustix::fs::CWD, source, flags)?;
        let is_directory = source.metadata()?.is_dir();
        Ok(Self { source: keep(tree)?, to: CString::new(format!("{STAGE}/{name}"))?, is_directory })
    }
}
