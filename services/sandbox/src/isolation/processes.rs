//! The processes of a sandbox. They share a namespace that no other process enters.
//!
//! A killed service takes its sandboxes with it, but for one case: a bubblewrap that dies between the clone of its child and the signal on
//! which the child goes on leaves the child, which waits for ever. The owner of the process ends it with its control group, or else the next service of the data directory.

use super::policy::User;
use crate::user_ids::UserIds;
use nix::errno::Errno;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    },
    path::Path,
};

/// Longest wait for the end of a killed process. It then keeps its control group until the next start.
const END_WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Ends the processes that an earlier service of `data` left, and returns how many there were. The caller holds the locks of the directory and
/// of `ids`, so no other service can own one of them. Blocks.
///
/// # Errors
/// When /proc cannot be read.
pub(crate) fn end_leftovers(data: &Path, ids: UserIds) -> io::Result<usize> {
    let user = User::find();
    let mut count = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        // It names this process and no later one, also if the process ends while it is looked at.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let is_leftover = match user {
            User::PerSession => entry.metadata().is_ok_and(|metadata| ids.contain(metadata.uid())),
            User::Service => is_bwrap_of(&entry.path(), data),
        };
        if is_leftover && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            count += 1;
            poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&END_WAIT)).ok();
        }
    }
    Ok(count)
}

/// Whether a process is a bubblewrap that shows something of `data`.
fn is_bwrap_of(process: &Path, data: &Path) -> bool {
    let name = fs::read_to_string(process.join("comm"));
    let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
    name.is_ok_and(|name| name.trim() == "bwrap")
        && arguments
            .split(|byte| *byte == 0)
            .any(|argument| Path::new(OsStr::from_bytes(argument)).starts_with(data))
}

/// Gives the processes inside the sandbox that `bwrap` was started for, also those in further namespaces that it made; none if it is gone.
pub(crate) fn inside(bwrap: u32) -> Vec<i32> {
    let Ok(own) = first(bwrap).and_then(|first| Namespace::of(first.as_ref())) else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let entries = entries.filter(|name| Namespace::of(name).is_ok_and(|other| other.lies_within(&own)));
    entries.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// A namespace of processes.
struct Namespace {
    file: OwnedFd,
    id: (u64, u64),
}

impl Namespace {
    /// That of a process.
    fn of(pid: &OsStr) -> io::Result<Self> {
        Self::open(fs::File::open(Path::new("/proc").join(pid).join("ns/pid"))?.into())
    }

    fn open(file: OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&file)?;
        Ok(Self { file, id: (stat.st_dev, stat.st_ino) })
    }

    /// The one that it was made in. The kernel does not show those above the service's own.
    #[allow(unsafe_code)] // No wrapper offers the call.
    fn parent(&self) -> io::Result<Self> {
        // SAFETY: the call takes no argument except the descriptor, which is open, and returns a new descriptor or an error.
        let parent = unsafe {
            let parent = libc::ioctl(self.file.as_raw_fd(), libc::NS_GET_PARENT as _);
            OwnedFd::from_raw_fd(Errno::result(parent)?)
        };
        Self::open(parent)
    }

    /// Whether it is `other` or was made in it. The kernel allows 32 levels.
    fn lies_within(self, other: &Self) -> bool {
        let mut levels = std::iter::successors(Some(self), |level| level.parent().ok());
        levels.any(|level| level.id == other.id)
    }
}

/// What the kernel of the machine has taken from processes for ever. The programs of gVisor cannot see it themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Restrictions {
    /// 1: no program gives them new rights.
    pub(crate) no_new_privs: u32,
    /// 2: filters decide about their calls.
    pub(crate) seccomp: u32,
    /// How many filters.
    pub(crate) filters: u32,
}

impl Restrictions {
    /// What all of these processes have lost that are in a namespace of their own. Bubblewrap has another process outside.
    pub(crate) fn of_all_inside(pids: &[i32]) -> Self {
        let status = |pid: &str| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let own = numbers(&status("self")).len();
        let inside = pids.iter().map(|pid| status(&pid.to_string()));
        let inside = inside.filter(|status| numbers(status).len() > own);
        let least = |one: Self, other: Self| Self {
            no_new_privs: one.no_new_privs.min(other.no_new_privs),
            seccomp: one.seccomp.min(other.seccomp),
            filters: one.filters.min(other.filters),
        };
        inside.map(|status| Self::read(&status)).reduce(least).unwrap_or_default()
    }

    fn read(status: &str) -> Self {
        let number = |name: &str| field(status, name).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        Self {
            no_new_privs: number("NoNewPrivs:"),
            seccomp: number("Seccomp:"),
            filters: number("Seccomp_filters:"),
        }
    }
}

/// The numbers of a process, in the namespace of the service and in all below it.
pub(crate) fn numbers(status: &str) -> Vec<&str> {
    field(status, "NSpid:").unwrap_or_default().split_whitespace().collect()
}

/// What stands behind a name in the status of a process.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// Gives the first process inside.
///
/// # Errors
/// When there is none.
pub(super) fn first(bwrap: u32) -> io::Result<String> {
    Ok(children(bwrap)?.first().ok_or(io::ErrorKind::NotFound)?.to_string())
}

/// Gives the children of all threads of a process.
///
/// # Errors
/// When the process is gone.
pub(super) fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut all = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // A thread that has ended has left its children to another one.
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    Ok(all)
}
