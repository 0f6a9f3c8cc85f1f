//! The scopes of API keys.

/// One scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Reading a tenant's data.
    Read,
    /// Changing a tenant's data, and starting work in it.
    Write,
    /// Managing tenants and the fleet.
    Operate,
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scopes(u8);

impl Scopes {
    /// The scopes of a tenant's key.
    pub(crate) const TENANT: Self = Self((1 << Scope::Read as u8) | (1 << Scope::Write as u8));
    /// The scopes of the operator's key.
    pub(crate) const OPERATOR: Self = Self(1 << Scope::Operate as u8);

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
        let both = Scopes::TENANT.union(Scopes::OPERATOR);
        for (scope, of_tenant, of_operator) in
            [(Scope::Read, true, false), (Scope::Write, true, false), (Scope::Operate, false, true)]
        {
            assert_eq!(Scopes::TENANT.contains(scope), of_tenant, "{scope:?}");
            assert_eq!(Scopes::OPERATOR.contains(scope), of_operator, "{scope:?}");
            assert!(both.contains(scope));
        }
    }
}
