//! Measures what a workspace takes: the files of its tree, and those without a name.

use super::{
    count::{Count, Measure},
    mapped::{MapReading, MappedFiles},
    nameless,
    walk::{self, DIRECTORY},
};
use rustix::fs::{Dir, Mode};
use std::{io, path::Path, sync::Arc};

/// Measures the tree with the files without a name that the processes `pids` hold. It counts at most four times `inodes_max`
/// entries, or a million. Waits for the processes for as long as they hold the locks of their memory.
///
/// # Errors
/// When the tree itself cannot be opened.
pub fn measure(tree: &Path, pids: &[i32], inodes_max: u64) -> io::Result<Measure> {
    let mut count = count_names(tree, inodes_max)?;
    add_all_nameless(&mut count, pids);
    Ok(count.measure)
}

/// The same for a workspace, whose processes it hardly waits for: what they map counts as `mapped` knows it.
///
/// # Errors
/// When the tree itself cannot be opened.
pub(super) fn measure_workspace(
    tree: &Path,
    pids: &[i32],
    inodes_max: u64,
    mapped: &Arc<MappedFiles>,
) -> io::Result<Measure> {
    let mut count = count_names(tree, inodes_max)?;
    nameless::add(&mut count, pids);
    // Afterwards: a file that a process maps may be closed at any moment.
    mapped.add_to(&mut count, pids);
    Ok(count.measure)
}

/// The same as [`measure`] for the changes of a build, whose processes see them through overlayfs: there, a file without a name has another device than the
/// tree.
///
/// # Errors
/// When the tree itself cannot be opened.
pub fn measure_changes(tree: &Path, pids: &[i32], inodes_max: u64) -> io::Result<Measure> {
    let mut count = count_names(tree, inodes_max)?;
    // Bubblewrap itself is one of the processes, and stays outside.
    let outside = rustix::fs::stat("/")?.st_dev;
    let mut roots = pids.iter().filter_map(|pid| rustix::fs::stat(format!("/proc/{pid}/root")).ok());
    if let Some(seen) = roots.find(|root| root.st_dev != outside) {
        count.owner.device = seen.st_dev;
        add_all_nameless(&mut count, pids);
    }
    Ok(count.measure)
}

fn count_names(tree: &Path, inodes_max: u64) -> io::Result<Count> {
    let root = rustix::fs::open(tree, DIRECTORY, Mode::empty())?;
    let mut count = Count::new(&rustix::fs::fstat(&root)?, inodes_max);
    walk::walk(&mut count, Dir::new(root)?);
    Ok(count)
}

fn add_all_nameless(count: &mut Count, pids: &[i32]) {
    nameless::add(count, pids);
    MapReading::of(pids, count.owner).add_to(count);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::disk::walk::DEPTH_MAX;
    use std::fs;

    #[test]
    fn names_count_as_inodes_and_content_counts_once() {
        let tree = tempfile::tempdir().unwrap();
        let empty = measure(tree.path(), &[], 10).unwrap();
        fs::write(tree.path().join("a"), vec![1_u8; 1 << 20]).unwrap();
        fs::hard_link(tree.path().join("a"), tree.path().join("b")).unwrap();
        std::os::unix::fs::symlink("/usr", tree.path().join("link")).unwrap();
        let full = measure(tree.path(), &[], 10).unwrap();
        assert!(!full.is_partial);
        assert_eq!(full.space.inodes, empty.space.inodes + 3);
        let grown = full.space.bytes - empty.space.bytes;
        assert!(((1 << 20)..(1 << 20) + (1 << 16)).contains(&grown), "{grown}");
    }

    #[test]
    fn a_tree_that_is_too_deep_is_known_in_part() {
        let tree = tempfile::tempdir().unwrap();
        let mut directory = rustix::fs::open(tree.path(), DIRECTORY, Mode::empty()).unwrap();
        for depth in 1..=DEPTH_MAX {
            assert!(!measure(tree.path(), &[], 10).unwrap().is_partial, "{depth}");
            rustix::fs::mkdirat(&directory, "d", Mode::RWXU).unwrap();
            directory = rustix::fs::openat(&directory, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        assert!(measure(tree.path(), &[], 10).unwrap().is_partial);
    }
}
