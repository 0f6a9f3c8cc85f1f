//! The user that owns layers: one of the user ids of sandboxes, which no workspace gets. Only `flotilla-unpack` runs as it.

use crate::layout;
use domain::ids::TenantId;
use std::{collections::BTreeMap, io, path::Path};

/// It holds the user in the place of a tenant.
const NO_TENANT: TenantId = TenantId(uuid::Uuid::nil());

/// Takes a slot out of the `count` user ids of workspaces: the one that `file` names, else the highest free one. `None`: workspaces have all
/// of them.
pub fn take_slot(file: &Path, used: &mut BTreeMap<u32, TenantId>, count: u32) -> io::Result<Option<u32>> {
    let earlier = match std::fs::read_to_string(file) {
        Ok(text) => text.trim().parse().ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut candidates = earlier.into_iter().filter(|slot| *slot < count).chain((1..count).rev());
    let Some(slot) = candidates.find(|slot| !used.contains_key(slot)) else { return Ok(None) };
    if earlier != Some(slot) {
        // Layers of an earlier owner stay as they are: every user may read them, and they are only shown read-only.
        layout::replace(file, slot.to_string().as_bytes())?;
    }
    used.insert(slot, NO_TENANT);
    Ok(Some(slot))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_owner_stays_and_has_no_workspace() {
        let directory = tempfile::tempdir().unwrap();
        let (file, tenant) = (directory.path().join("owner"), TenantId(uuid::Uuid::now_v7()));
        let mut used = BTreeMap::from([(0, tenant), (9, tenant)]);
        assert_eq!(take_slot(&file, &mut used, 10).unwrap(), Some(8));
        assert!(used.contains_key(&8));
        let take = |count, used: &[u32]| {
            let mut used = used.iter().map(|slot| (*slot, tenant)).collect();
            take_slot(&file, &mut used, count).unwrap()
        };
        assert_eq!(take(20, &[]), Some(8), "a larger range keeps it");
        assert_eq!(take(3, &[2]), Some(1), "a smaller range has another");
        assert_eq!(take(2, &[0, 1]), None);
        assert_eq!(take(1, &[]), None, "the only user is for a workspace");
    }
}
