//! Where the service may make groups: below its own.

use super::slices::fresh_name;
use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

/// Finds where this process may make groups of a controller of version 1, from the texts of `/proc/self/cgroup` and `/proc/self/mounts`.
pub(super) fn find_v1(controller: &str, own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next()?.split(',').any(|c| c == controller).then(|| fields.next())?
    })?;
    let mount = mounts.lines().find_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        let here = fields.get(2) == Some(&"cgroup") && fields.get(3)?.split(',').any(|o| o == controller);
        here.then(|| fields[1])
    })?;
    let base = Path::new(mount).join(path.trim_start_matches('/'));
    let wanted = match controller {
        "cpu" => "cpu.cfs_quota_us",
        "cpuacct" => "cpuacct.stat",
        _ => "cgroup.procs",
    };
    takes_children(&base, wanted).then_some(base)
}

/// The service's own group cannot have children while the service is in it ("no internal processes"), unless it is the
/// root. systemd's `DelegateSubgroup=` puts the service one level below its delegated group, so the parent is tried as
/// well.
pub(super) fn find_v2(own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let mount = fields.next()?;
        (fields.next()? == "cgroup2").then_some(mount)
    })?;
    let base = Path::new(mount).join(path);
    let parent = (!path.is_empty()).then(|| base.parent()).flatten().map(Path::to_owned);
    std::iter::once(base)
        .chain(parent)
        .find(|b| takes_children(b, "memory.max") && takes_children(b, "pids.max"))
}

/// Whether groups can be made in a directory, and have the file `wanted`.
pub(super) fn takes_children(base: &Path, wanted: &str) -> bool {
    let probe = base.join(fresh_name());
    if fs::create_dir(&probe).is_err() {
        return false;
    }
    let usable = OpenOptions::new().write(true).open(probe.join(wanted)).is_ok();
    fs::remove_dir(&probe).is_ok() && usable
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn version_1_is_found_where_it_is_mounted() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("mine")).unwrap();
        let own = "4:memory:/mine\n0::/\n";
        let mounts = format!("cgroup {} cgroup rw,relatime,memory 0 0\n", directory.path().display());
        // A plain directory has no cgroup.procs, so it does not count as a group.
        assert_eq!(find_v1("memory", own, &mounts), None);
        assert_eq!(find_v1("pids", own, &mounts), None);
    }
}
