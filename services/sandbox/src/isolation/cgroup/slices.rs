//! The groups between the service's own and those of its sandboxes, which share out the processors: a slice for each tenant. The kernel gives
//! each slice its part by weight, however many processes, sessions and sandboxes are in it, and nothing inside can leave it.

use domain::ids::TenantId;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Prefix of the names of groups; the service's process id follows it.
pub(super) const PREFIX: &str = "flotilla-";
/// The weight of a tenant that has used nothing yet, and the greatest one.
pub(super) const NEW_WEIGHT: u64 = 1_000;
/// A tenant with at least this weight is calm: it lately used less than half of its part of the processors.
const CALM_WEIGHT: u64 = 500;
/// What a group has by default, in version 2 and in version 1.
const DEFAULT_WEIGHT: u64 = 100;
const DEFAULT_SHARES: u64 = 1_024;
/// Attempts to make a group while the last one of its tenant ends, which removes the slices.
const MAKE_TRIES: u32 = 100;
/// The slice of a tenant, and the group of a sandbox.
const LEVELS: u32 = 2;

/// The version of the control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    /// Version 1, where the kernel counts the use of processors in a hierarchy of its own, which has no weights.
    V1Counters,
    V2,
}

/// The slices below a directory.
#[derive(Debug)]
pub(super) struct Slices<'a> {
    /// Of the service's own group.
    pub(super) base: &'a Path,
    pub(super) version: Version,
}

impl Slices<'_> {
    pub(super) fn of(&self, tenant: TenantId) -> PathBuf {
        self.base.join(format!("{}{tenant}", prefix()))
    }

    /// Makes a group in the slice of a tenant.
    pub(super) fn make_group(&self, tenant: TenantId, name: &str) -> io::Result<PathBuf> {
        let slice = self.of(tenant);
        let directory = slice.join(name);
        let attempt = || {
            self.make(&slice, NEW_WEIGHT)?;
            fs::create_dir(&directory)
        };
        let mut tries = 1;
        loop {
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < MAKE_TRIES => tries += 1,
                result => return result.map(|()| directory),
            }
        }
    }

    /// Whether a tenant is calm, by the weight of its slice in version 1.
    pub(super) fn is_calm(&self, tenant: TenantId) -> bool {
        let shares = fs::read_to_string(self.of(tenant).join("cpu.shares")).unwrap_or_default();
        let weight = shares.trim().parse::<u64>().map(|shares| shares * DEFAULT_WEIGHT / DEFAULT_SHARES);
        weight.is_ok_and(|weight| weight >= CALM_WEIGHT)
    }

    /// Makes a slice, or completes one that another call has just made.
    fn make(&self, slice: &Path, weight: u64) -> io::Result<()> {
        match fs::create_dir(slice) {
            Ok(()) => set_weight(slice, self.version, weight),
            // The weight of a tenant has changed since.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if self.version == Version::V2 {
            let control = slice.join("cgroup.subtree_control");
            fs::write(&control, "+memory +pids")?;
            drop(fs::write(&control, "+cpu"));
        }
        Ok(())
    }
}

/// Sets the weight of a slice. A failure is none: the operator has accepted a machine whose kernel does not share out the processors.
pub(super) fn set_weight(slice: &Path, version: Version, weight: u64) {
    match version {
        Version::V1 => {
            let shares = DEFAULT_SHARES * weight / DEFAULT_WEIGHT;
            drop(fs::write(slice.join("cpu.shares"), shares.to_string()));
        }
        Version::V1Counters => {}
        Version::V2 => drop(fs::write(slice.join("cpu.weight"), weight.to_string())),
    }
}

/// What the names of this service's slices begin with. The id of the tenant follows.
pub(super) fn prefix() -> String {
    format!("{PREFIX}{}.", std::process::id())
}

/// A name for a group of this service.
pub(super) fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Removes a slice if it holds no group; otherwise the kernel refuses.
pub(super) fn remove_unused(slice: &Path) {
    fs::remove_dir(slice).ok();
}

/// Removes a group that a killed service left behind, with everything below it.
pub(super) fn remove_tree(directory: &Path) {
    remove_levels(directory, LEVELS);
}

fn remove_levels(directory: &Path, levels: u32) {
    if levels > 1 {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove_levels(&entry.path(), levels - 1);
            }
        }
    }
    fs::remove_dir(directory).ok();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_tenant_that_used_much_is_not_calm() {
        let base = tempfile::tempdir().unwrap();
        let (slices, tenant) =
            (Slices { base: base.path(), version: Version::V1 }, TenantId(uuid::Uuid::now_v7()));
        assert!(!slices.is_calm(tenant), "nothing is known of it");
        slices.make_group(tenant, "a").unwrap();
        for (weight, is_calm) in [(NEW_WEIGHT, true), (CALM_WEIGHT, true), (100, false)] {
            set_weight(&slices.of(tenant), Version::V1, weight);
            assert_eq!(slices.is_calm(tenant), is_calm, "{weight}");
        }
    }

    #[test]
    fn slices_end_with_their_last_group() {
        let base = tempfile::tempdir().unwrap();
        let slices = Slices { base: base.path(), version: Version::V1 };
        let (one, other) = (TenantId(uuid::Uuid::now_v7()), TenantId(uuid::Uuid::now_v7()));
        let made = [(one, "a"), (one, "b"), (other, "a")]
            .map(|(tenant, name)| slices.make_group(tenant, name).unwrap());
        // The files of the kernel do not keep it from removing a group; those of a plain directory do.
        let plain = |tenant| {
            fs::remove_file(slices.of(tenant).join("cpu.shares")).ok();
        };
        let left = || fs::read_dir(base.path()).unwrap().count();
        for (place, (tenant, slices_left)) in made.iter().zip([(one, 2), (one, 1), (other, 0)]) {
            plain(tenant);
            fs::remove_dir(place).unwrap();
            remove_unused(&slices.of(tenant));
            assert_eq!(left(), slices_left, "{}", place.display());
        }
        slices.make_group(one, "a").unwrap();
        plain(one);
        remove_tree(&slices.of(one));
        assert_eq!(left(), 0);
    }
}
