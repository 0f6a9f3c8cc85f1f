//! Which mirrors the machine has, what they take, and when they were last used. It only counts; the disk is elsewhere.

use super::{generation::Generation, key::MirrorKey};
use crate::disk::shared_space::{self, Holding, Newcomer};
use domain::ids::{ProjectId, TenantId};
use std::{collections::HashMap, sync::Arc, time::SystemTime};

/// The mirrors of a machine.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    mirrors: HashMap<MirrorKey, StoredMirror>,
}

/// A mirror on the disk.
#[derive(Debug)]
struct StoredMirror {
    generation: Arc<Generation>,
    used_at: SystemTime,
}

impl StoredMirror {
    /// Whether a clone reads it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.generation) > 1
    }
}

impl Ledger {
    /// The newest generation of a mirror.
    pub(super) fn find(&self, key: &MirrorKey) -> Option<Arc<Generation>> {
        self.mirrors.get(key).map(|stored| Arc::clone(&stored.generation))
    }

    /// Whether `generation` is the newest one of a mirror; `None`: whether the machine has none.
    pub(super) fn is_newest(&self, key: &MirrorKey, generation: Option<&Arc<Generation>>) -> bool {
        match (self.mirrors.get(key), generation) {
            (Some(stored), Some(generation)) => Arc::ptr_eq(&stored.generation, generation),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    pub(super) fn touch(&mut self, key: &MirrorKey, now: SystemTime) {
        if let Some(stored) = self.mirrors.get_mut(key) {
            stored.used_at = now;
        }
    }

    /// Adds a generation, in place of the earlier one of its mirror, which retires.
    pub(super) fn add(&mut self, generation: Generation, used_at: SystemTime) -> Arc<Generation> {
        let (key, generation) = (generation.key.clone(), Arc::new(generation));
        let added = Arc::clone(&generation);
        if let Some(earlier) = self.mirrors.insert(key, StoredMirror { generation, used_at }) {
            earlier.generation.retire();
        }
        added
    }

    /// What all mirrors take; bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.mirrors.values().map(|stored| stored.generation.bytes).sum()
    }

    /// Makes room for a generation of `bytes`, which replaces the one that its mirror has: retires mirrors that no clone reads until all fit into `bytes_max`.
    /// Returns whether they do; if not, nothing is retired.
    pub(super) fn make_room(&mut self, key: &MirrorKey, bytes: u64, bytes_max: u64) -> bool {
        let holding = |(other, stored): (&MirrorKey, &StoredMirror)| Holding {
            key: other.clone(),
            tenant: Some(other.tenant),
            bytes: stored.generation.bytes,
            used_at: stored.used_at,
            is_used: stored.is_used(),
        };
        let others = self.mirrors.iter().filter(|(other, _)| *other != key).map(holding).collect();
        let new = Newcomer { tenant: Some(key.tenant), bytes };
        let Ok(leaving) = shared_space::make_room(others, new, bytes_max) else { return false };
        leaving.iter().for_each(|mirror| self.retire(mirror));
        true
    }

    /// Takes a mirror out. Its files go when no clone reads them.
    pub(super) fn retire(&mut self, key: &MirrorKey) {
        if let Some(stored) = self.mirrors.remove(key) {
            stored.generation.retire();
        }
    }

    /// Takes out all mirrors of a tenant.
    pub(super) fn retire_tenant(&mut self, tenant: TenantId) {
        self.retire_all(|key, _| key.tenant == tenant);
    }

    /// Takes out all mirrors of a project.
    pub(super) fn retire_project(&mut self, tenant: TenantId, project: &ProjectId) {
        self.retire_all(|key, _| key.tenant == tenant && key.project == *project);
    }

    /// The projects with mirrors, and what these take; bytes.
    pub(super) fn projects(&self) -> HashMap<(TenantId, ProjectId), u64> {
        let mut projects = HashMap::new();
        for (key, stored) in &self.mirrors {
            *projects.entry((key.tenant, key.project.clone())).or_default() += stored.generation.bytes;
        }
        projects
    }

    /// Takes out the mirrors that no clone reads, and that none has read since `since`.
    pub(super) fn retire_unused(&mut self, since: SystemTime) {
        self.retire_all(|_, stored| stored.used_at < since && !stored.is_used());
    }

    fn retire_all(&mut self, is_meant: impl Fn(&MirrorKey, &StoredMirror) -> bool) {
        self.mirrors.retain(|key, stored| {
            let retires = is_meant(key, stored);
            if retires {
                stored.generation.retire();
            }
            !retires
        });
    }
}
