//! How much a tenant may store. Quotas stop what begins: new sessions, projects, bundles and prompts. A turn that runs goes on.

use std::fmt;

/// Percentage of a quota from which the tenant and the operator are warned.
pub const QUOTA_WARNING_PERCENT: u64 = 80;

/// What a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Sessions, their subtasks included.
    Sessions,
    Projects,
    /// Bytes of bundles and of the logs of sessions, as Postgres stores them.
    StoredBytes,
}

impl Resource {
    pub const ALL: [Self; 3] = [Self::Sessions, Self::Projects, Self::StoredBytes];

    /// The name of the resource in metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Projects => "projects",
            Self::StoredBytes => "stored bytes",
        }
    }
}

/// One number for each resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts<T> {
    /// For [`Resource::Sessions`].
    pub sessions: T,
    /// For [`Resource::Projects`].
    pub projects: T,
    /// For [`Resource::StoredBytes`].
    pub stored_bytes: T,
}

pub type Usage = Amounts<u64>;
/// What all tenants without a quota of their own may store.
pub type PlatformQuota = Amounts<u64>;
/// What a tenant may store; `None`: as much as the platform says.
pub type TenantQuota = Amounts<Option<u64>>;

impl<T: Copy> Amounts<T> {
    /// The number for a resource.
    pub fn of(&self, resource: Resource) -> T {
        match resource {
            Resource::Sessions => self.sessions,
            Resource::Projects => self.projects,
            Resource::StoredBytes => self.stored_bytes,
        }
    }

    /// The number for a resource, to change it.
    pub fn of_mut(&mut self, resource: Resource) -> &mut T {
        match resource {
            Resource::Sessions => &mut self.sessions,
            Resource::Projects => &mut self.projects,
            Resource::StoredBytes => &mut self.stored_bytes,
        }
    }
}

impl TenantQuota {
    pub fn limits(self, platform: PlatformQuota) -> Amounts<u64> {
        Amounts {
            sessions: self.sessions.unwrap_or(platform.sessions),
            projects: self.projects.unwrap_or(platform.projects),
            stored_bytes: self.stored_bytes.unwrap_or(platform.stored_bytes),
        }
    }
}

/// How much of a quota is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    pub resource: Resource,
    pub used: u64,
    pub limit: u64,
}

impl Level {
    /// The used part of the quota in percent, rounded down. A quota of 0 is used up.
    pub fn percent(self) -> u64 {
        let percent = (u128::from(self.used) * 100).checked_div(u128::from(self.limit)).unwrap_or(100);
        u64::try_from(percent).unwrap_or(u64::MAX)
    }

    /// Whether people are warned.
    pub fn is_near(self) -> bool {
        self.percent() >= QUOTA_WARNING_PERCENT
    }

    /// Whether `more` would exceed the quota.
    pub fn is_exceeded_by(self, more: u64) -> bool {
        self.used.saturating_add(more) > self.limit
    }
}

impl fmt::Display for Level {
    /// What the tenant has and may have: "the tenant has 10 sessions, its quota is 10".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tenant has {} {}, its quota is {}", self.used, self.resource.as_str(), self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_warns_from_80_percent_and_ends_at_the_limit() {
        let level = |used, limit| Level { resource: Resource::Sessions, used, limit };
        for (used, limit, percent, is_near, is_full) in [
            (0, 10, 0, false, false),
            (7, 10, 70, false, false),
            (8, 10, 80, true, false),
            (9, 10, 90, true, false),
            (10, 10, 100, true, true),
            (12, 10, 120, true, true),
            (0, 0, 100, true, true),
            (u64::MAX, 1, u64::MAX, true, true),
        ] {
            let level = level(used, limit);
            assert_eq!(
                (level.percent(), level.is_near(), level.is_exceeded_by(1)),
                (percent, is_near, is_full),
                "{level:?}"
            );
        }
        assert!(!level(3, 10).is_exceeded_by(7));
        assert!(level(3, 10).is_exceeded_by(8));
        assert!(!level(10, 10).is_exceeded_by(0));
    }

    #[test]
    fn a_tenant_without_a_quota_has_that_of_the_platform() {
        let platform = Amounts { sessions: 1, projects: 2, stored_bytes: 3 };
        let own = TenantQuota { projects: Some(0), ..TenantQuota::default() };
        assert_eq!(own.limits(platform), Amounts { sessions: 1, projects: 0, stored_bytes: 3 });
        for resource in Resource::ALL {
            let mut amounts = platform;
            *amounts.of_mut(resource) = 9;
            assert_eq!(
                Resource::ALL.map(|other| amounts.of(other) == 9),
                Resource::ALL.map(|other| other == resource)
            );
        }
    }
}
