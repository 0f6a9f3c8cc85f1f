//! The scopes of API keys.

use domain::policy::role::Role;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Read,
    /// Changing a tenant's data, and starting work in it.
    Write,
    /// Managing a tenant's keys, secrets and settings, and what binds all its people.
    Manage,
    /// Managing tenants and the fleet.
    Operate,
}

impl Scope {
    /// Its name in the description of the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Manage => "manage",
            Self::Operate => "operate",
        }
    }

    /// What a key without the scope cannot do.
    pub(crate) fn lack(self) -> &'static str {
        match self {
            Self::Read => "cannot read this",
            Self::Write => "may only read",
            Self::Manage => {
                "manages neither keys nor secrets nor settings, nor what binds all people of the tenant"
            }
            Self::Operate => "is not the operator's",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scopes(u8);

impl Scopes {
    /// The scopes of a tenant's key without restrictions.
    pub(crate) const TENANT: Self =
        Self((1 << Scope::Read as u8) | (1 << Scope::Write as u8) | (1 << Scope::Manage as u8));
    /// The scopes of the operator's key.
    pub(crate) const OPERATOR: Self = Self(1 << Scope::Operate as u8);

    /// The scopes of a tenant's key.
    pub(crate) const fn of(role: Role) -> Self {
        match role {
            Role::Admin => Self::TENANT,
            Role::Member => Self((1 << Scope::Read as u8) | (1 << Scope::Write as u8)),
            Role::Viewer => Self(1 << Scope::Read as u8),
        }
    }

    /// The scopes in both sets.
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the set contains this scope.
    pub(crate) const fn contains(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_allows_only_its_own_scopes() {
        let all = [Scope::Read, Scope::Write, Scope::Manage, Scope::Operate];
        for (scopes, want) in [
            (Scopes::of(Role::Admin), [true, true, true, false]),
            (Scopes::of(Role::Member), [true, true, false, false]),
            (Scopes::of(Role::Viewer), [true, false, false, false]),
            (Scopes::OPERATOR, [false, false, false, true]),
            (Scopes::TENANT.union(Scopes::OPERATOR), [true; 4]),
        ] {
            assert_eq!(all.map(|scope| scopes.contains(scope)), want, "{scopes:?}");
        }
    }
}
