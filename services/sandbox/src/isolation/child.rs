//! What the child does between fork and exec of its program: it sets limits, makes a mount namespace in which the sandbox's
//! user can reach its mounts, and changes to that user. It makes only system calls and allocates nothing: other threads of
//! the service may hold any lock at that moment.
//!
//! The next start waits until this one has come to its exec. Therefore the child yields the processors in its last step. If its tenant
//! is busy, only its program enters the group that shares out the processors: the child would wait there for a turn of that tenant.

use super::{policy::OPEN_FILES_MAX, priority, stage::Stage};
use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
    sys::resource::{Resource, setrlimit},
    unistd::{Gid, Uid, setgroups, setresgid, setresuid, setsid},
};
use std::{
    io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::Command,
};

/// Bytes of memory that one process of a sandbox may lock. Locking more fails in the process.
const LOCKED_MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// Everything that the child needs, made before the fork.
#[derive(Debug)]
pub(super) struct ChildSetup {
    /// `None`: the child keeps the service's mount namespace.
    pub(super) stage: Option<Stage>,
    /// Where it starts; `None`: where its command says. It need not be reachable by the child's user.
    pub(super) directory: Option<OwnedFd>,
    /// The lists of tasks of the groups that it enters.
    pub(super) groups: Vec<OwnedFd>,
    /// Open in the program; everything else from 3 on is closed.
    pub(super) kept: Vec<OwnedFd>,
    /// `None`: the service's own.
    pub(super) uid: Option<u32>,
    /// Largest file; bytes.
    pub(super) file_bytes_max: u64,
    /// Whether its nice value is lowered. Where tenants share the processors by weight, that of its group counts: a nice value would only make it
    /// wait, before it is in its group, for the service's own threads.
    pub(super) is_nice: bool,
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
        for group in &self.groups {
            nix::unistd::write(group, b"0")?;
        }
        if let Some(stage) = &self.stage {
            unshare(CloneFlags::CLONE_NEWNS)?;
            stage.build()?;
        }
        if let Some(directory) = &self.directory {
            nix::unistd::fchdir(directory)?;
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
        if self.is_nice {
            // A sandbox without it works as well. The self-test reports the nice value inside.
            priority::lower().ok();
        }
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
