//! What the disk of this machine has of each session.

use crate::{
    layout::{Key, Layout},
    tree::meta::Meta,
};
use domain::ids::TenantId;
use std::{
    collections::BTreeSet,
    io,
    path::Path,
    time::{Duration, SystemTime},
};

/// What the disk has of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    pub key: Key,
    /// Whether it has a workspace of its own.
    pub has_files: bool,
    /// Time since its epoch was last raised, or its files were made.
    pub idle: Duration,
    /// The highest epoch seen.
    pub epoch: u64,
}

/// Lists at most `limit` sessions after `after`, by the names of their directories. Blocks.
pub fn list(layout: &Layout, after: &str, limit: usize) -> io::Result<Vec<Inventory>> {
    let (tenant_after, _) = after.split_once('/').unwrap_or_default();
    let parents = [layout.workspaces(), layout.all_execs()];
    let mut tenants = BTreeSet::new();
    for parent in &parents {
        tenants.extend(names(parent)?);
    }
    let mut keys = BTreeSet::new();
    for tenant in tenants.range(tenant_after.to_owned()..) {
        for parent in &parents {
            let sessions = names(&parent.join(tenant))?.into_iter();
            let cursors = sessions.map(|session| format!("{tenant}/{session}"));
            keys.extend(cursors.filter(|cursor| cursor.as_str() > after && parse(cursor).is_some()));
        }
        if keys.len() >= limit {
            break;
        }
    }
    keys.iter().filter_map(|key| parse(key)).take(limit).map(|key| inspect(layout, key)).collect()
}

/// Lists all sessions of a tenant. Blocks.
pub fn of_tenant(layout: &Layout, tenant: TenantId) -> io::Result<Vec<Key>> {
    let mut keys = BTreeSet::new();
    for parent in [layout.workspaces(), layout.all_execs(), layout.fences()] {
        keys.extend(names(&parent.join(tenant.to_string()))?);
    }
    let key = |session: &String| Some(Key { tenant, session: session.parse().ok()? });
    Ok(keys.iter().filter_map(key).collect())
}

pub fn cursor(key: &Key) -> String {
    format!("{}/{}", key.tenant, key.session)
}

fn parse(key: &str) -> Option<Key> {
    let (tenant, session) = key.split_once('/')?;
    Some(Key { tenant: tenant.parse().ok()?, session: session.parse().ok()? })
}

/// The names in a directory; none if it does not exist.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn inspect(layout: &Layout, key: Key) -> io::Result<Inventory> {
    let (workspace, fence) = (layout.workspace(&key), layout.fence(&key));
    let has_files = Meta::read(&workspace)?.is_some();
    let times = [&fence, &workspace, &layout.execs(&key)].map(|path| modified(path));
    let newest = times.into_iter().flatten().max();
    // A time in the future counts as now.
    let idle = newest.and_then(|newest| newest.elapsed().ok()).unwrap_or_default();
    let epoch = std::fs::read_to_string(fence).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Ok(Inventory { key, has_files, idle, epoch })
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sessions_are_listed_page_by_page() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::create(directory.path()).unwrap();
        let key = |tenant: u128, session: &str| Key {
            tenant: TenantId(uuid::Uuid::from_u128(tenant)),
            session: session.parse().unwrap(),
        };
        let all = [key(1, "ses_a"), key(1, "ses_b"), key(2, "ses_a")];
        std::fs::create_dir_all(layout.workspace(&all[0])).unwrap();
        for key in &all[1..] {
            std::fs::create_dir_all(layout.execs(key)).unwrap();
        }
        std::fs::create_dir_all(layout.fence(&all[1]).parent().unwrap()).unwrap();
        std::fs::write(layout.fence(&all[1]), "7").unwrap();
        std::fs::create_dir_all(layout.workspaces().join("lost+found/x")).unwrap();

        let first = list(&layout, "", 2).unwrap();
        let rest = list(&layout, &cursor(&first[1].key), 2).unwrap();
        let keys: Vec<_> = first.iter().chain(&rest).map(|entry| entry.key.clone()).collect();
        assert_eq!(keys, all);
        assert_eq!(list(&layout, &cursor(&all[2]), 2).unwrap(), []);
        let [workspace, outputs] = [&first[0], &first[1]];
        assert_eq!((workspace.has_files, workspace.epoch), (false, 0), "not made yet");
        assert_eq!((outputs.has_files, outputs.epoch), (false, 7));
        assert!(outputs.idle < Duration::from_secs(60));
        assert_eq!(of_tenant(&layout, all[0].tenant).unwrap(), all[..2]);
    }
}
