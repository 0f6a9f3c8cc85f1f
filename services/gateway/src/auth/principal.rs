//! The caller of a use case and its permissions. A use case gets the tenant only by naming the scope that it needs, so no use
//! case can forget the check.

use super::live_keys::KeySha256;
use crate::{
    errors::{error::Error, invalid::Invalid},
    scope::{Scope, Scopes},
};
use bus::queue::TenantShare;
use domain::{
    ids::TenantId,
    policy::{quota::TenantQuota, role::Role},
    text::hex,
};
use store::{Actor, Store, control::tenants::KeyOwner, tenant::tenants::Tenant};

/// The name of the operator in logs and responses.
const OPERATOR: &str = "operator";
/// Bytes of a key's hash in [`Principal::reader`].
const READER_BYTES: usize = 8;

/// The owner of a valid key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The name of the key; `operator` for the operator's.
    name: String,
    /// The public first part of the key; empty for the operator's.
    key_prefix: String,
    /// `None` for the operator's.
    key: Option<KeySha256>,
    reader: String,
    account: Option<Account>,
    scopes: Scopes,
}

/// The tenant that a principal acts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) tenant: TenantId,
    /// The tenant's share of the workers.
    pub(crate) share: TenantShare,
    /// What the tenant may store, where that differs from the platform.
    pub(crate) quota: TenantQuota,
}

impl Account {
    pub(crate) fn of(tenant: &Tenant) -> Self {
        let share = TenantShare { running_max: tenant.running_max, weight: tenant.weight };
        Self { tenant: tenant.id, share, quota: tenant.quota }
    }
}

impl Principal {
    pub(super) fn of_tenant(owner: KeyOwner, key: KeySha256, account: Account) -> Self {
        let KeyOwner { name, prefix, role, .. } = owner;
        let reader = hex(&key[..READER_BYTES]);
        let (key, account) = (Some(key), Some(account));
        Self { name, key_prefix: prefix, key, reader, account, scopes: Scopes::of(role) }
    }

    /// A person whom a forge has named, and whom this program has found to have the right to write.
    pub(crate) fn of_forge(name: String, account: Account) -> Self {
        Self {
            reader: name.clone(),
            name,
            key_prefix: String::new(),
            key: None,
            account: Some(account),
            scopes: Scopes::of(Role::Member),
        }
    }

    /// The operator, acting for a tenant.
    pub(super) fn operator_for(account: Account) -> Self {
        let scopes = Scopes::TENANT.union(Scopes::OPERATOR);
        Self { account: Some(account), scopes, ..Self::operator() }
    }

    /// The operator, acting for no tenant.
    pub(super) fn operator() -> Self {
        Self {
            name: OPERATOR.to_owned(),
            key_prefix: String::new(),
            key: None,
            reader: OPERATOR.to_owned(),
            account: None,
            scopes: Scopes::OPERATOR,
        }
    }

    /// The name of its key.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The store, for changes that the audit writes down in its name.
    pub(crate) fn acting(&self, store: &Store) -> Store {
        store.acting(self.actor())
    }

    /// Itself, as the audit names it.
    pub(crate) fn actor(&self) -> Actor {
        Actor { name: self.name.clone(), key: self.key_prefix.clone() }
    }

    /// The name under which notices reach the clients with its key. Names of keys are not unique.
    pub(crate) fn reader(&self) -> &str {
        &self.reader
    }

    /// Its key; `None` for the operator's, which cannot be revoked.
    pub(crate) fn key(&self) -> Option<KeySha256> {
        self.key
    }

    /// Returns the tenant if the principal has the scope in it.
    ///
    /// # Errors
    /// `scope_missing`, `tenant_missing`.
    pub(crate) fn account(&self, scope: Scope) -> Result<Account, Error> {
        self.require(scope)?;
        self.account.ok_or_else(|| Invalid::TenantMissing.because("the call names no tenant"))
    }

    /// Like [`Principal::account`], but returns only the tenant's id.
    ///
    /// # Errors
    /// `scope_missing`, `tenant_missing`.
    pub(crate) fn tenant(&self, scope: Scope) -> Result<TenantId, Error> {
        Ok(self.account(scope)?.tenant)
    }

    /// Whether the principal has a scope.
    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(scope)
    }

    /// Checks a scope.
    ///
    /// # Errors
    /// `scope_missing`; `operator_only` for [`Scope::Operate`].
    pub(crate) fn require(&self, scope: Scope) -> Result<(), Error> {
        if self.has(scope) {
            return Ok(());
        }
        match scope {
            Scope::Operate => Err(Error::OperatorOnly("only the operator's key allows this")),
            Scope::Read | Scope::Write | Scope::Manage => Err(Error::ScopeMissing(scope)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::ids::Timestamp;
    use store::tenant::retention::Retention;

    #[test]
    fn a_principal_gets_a_tenant_only_within_its_scopes() {
        let share = TenantShare { running_max: 1, weight: 1 };
        let tenant = TenantId(uuid::Uuid::nil());
        let account = Account { tenant, share, quota: TenantQuota::default() };
        let owner = KeyOwner {
            tenant: Tenant {
                id: tenant,
                name: "acme".to_owned(),
                running_max: 1,
                weight: 1,
                retention: Retention::default(),
                quota: TenantQuota::default(),
                created_at: Timestamp(0),
            },
            name: "ci".to_owned(),
            prefix: "flk_test".to_owned(),
            role: Role::Admin,
        };
        let tenant = Principal::of_tenant(owner, [0; 32], account);
        assert_eq!(tenant.actor(), Actor { name: "ci".to_owned(), key: "flk_test".to_owned() });
        assert_eq!(tenant.account(Scope::Write), Ok(account));
        assert_eq!(
            tenant.require(Scope::Operate).map_err(|error| error.code().to_owned()),
            Err("operator_only".to_owned())
        );
        let operator = Principal::operator();
        assert_eq!(operator.tenant(Scope::Read), Err(Error::ScopeMissing(Scope::Read)));
        assert_eq!(operator.require(Scope::Operate), Ok(()));
        let both = Principal::operator_for(account);
        assert_eq!((both.tenant(Scope::Write), both.require(Scope::Operate)), (Ok(account.tenant), Ok(())));
    }
}
