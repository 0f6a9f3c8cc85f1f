//! The processes of a sandbox. They share a namespace that no other process enters.

use std::{ffi::OsStr, fs, io, path::Path};

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
