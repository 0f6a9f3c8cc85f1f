//! The processes of a sandbox, for machines without control groups. They share a namespace that no other process enters.

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
    let children = fs::read_to_string(format!("/proc/{bwrap}/task/{bwrap}/children"))?;
    Ok(children.split_whitespace().next().ok_or(io::ErrorKind::NotFound)?.to_owned())
}
