//! The processes of a sandbox. They share a namespace that no other process enters.
//!
//! A killed service takes its sandboxes with it, but for one case: a bubblewrap that dies between the clone of its child and the signal on
//! which the child goes on leaves the child, which waits for ever. The owner of the process ends it with its control group, or else the next service of the data directory.

use super::policy::User;
use crate::claims::users::UserIds;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
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

/// Gives the processes inside the sandbox that `bwrap` was started for; none if it is gone.
pub(crate) fn inside(bwrap: u32) -> Vec<i32> {
    let namespace = |pid: &OsStr| fs::read_link(Path::new("/proc").join(pid).join("ns/pid"));
    let Ok(own) = first(bwrap).and_then(|first| namespace(first.as_ref())) else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let entries = entries.filter(|name| namespace(name).is_ok_and(|other| other == own));
    entries.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// Gives the first process inside.
///
/// # Errors
/// When there is none.
pub(super) fn first(bwrap: u32) -> io::Result<String> {
    Ok(children(bwrap)?.first().ok_or(io::ErrorKind::NotFound)?.to_string())
}

/// Gives the children of a process with one thread.
///
/// # Errors
/// When the process is gone.
pub(super) fn children(pid: u32) -> io::Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(children.split_whitespace().filter_map(|child| child.parse().ok()).collect())
}
