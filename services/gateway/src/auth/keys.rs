//! Finds the principal of a key. A tenant's key is looked up by its SHA-256; the operator's key belongs to no tenant and may act
//! for any.

use super::{
    attempts::{Attempt, Attempts},
    key_cache::KeyCache,
    live_keys::LiveKeys,
    principal::{Account, Principal},
    refused_keys::RefusedKeys,
};
use crate::errors::{entity::Entity, error::Error, invalid::Invalid};
use sha2::{Digest as _, Sha256};
use std::{net::IpAddr, sync::Arc, time::Instant};
use store::{Store, control::tenants::KeyOwner};
use subtle::ConstantTimeEq as _;

/// Names the tenant of a call with the operator's key. With a tenant's key it may only repeat that tenant.
pub(crate) const TENANT_HEADER: &str = "x-flotilla-tenant";

/// The credentials of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credentials<'a> {
    pub(crate) key: &'a str,
    /// The value of [`TENANT_HEADER`].
    pub(crate) tenant: Option<&'a str>,
    /// The address that the call comes from.
    pub(crate) client: Option<IpAddr>,
}

/// The keys that the gateway accepts; clones share the count of wrong keys.
#[derive(Clone)]
pub(crate) struct Keys {
    store: Store,
    operator_sha256: Option<[u8; 32]>,
    attempts: Arc<Attempts>,
    cache: Arc<KeyCache>,
    live: Arc<LiveKeys>,
    refused: Arc<RefusedKeys>,
}

impl Keys {
    /// The keys in the store, and the operator's key if one is configured.
    pub(crate) fn new(store: Store, operator_key: Option<&str>) -> Self {
        let operator_sha256 = operator_key.map(|key| Sha256::digest(key).into());
        Self {
            store,
            operator_sha256,
            attempts: Arc::default(),
            cache: Arc::default(),
            live: Arc::default(),
            refused: Arc::default(),
        }
    }

    /// Finds the principal that acts for a tenant.
    ///
    /// # Errors
    /// `key_unknown`, `too_many_attempts`, `tenant_not_found`; with the operator's key `tenant_missing` and `tenant_invalid`;
    /// `store_unavailable`.
    pub(crate) async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Principal, Error> {
        let Credentials { key, tenant: named, client } = credentials;
        let attempt = Attempt::new(key, client);
        self.attempts.check(&attempt, Instant::now())?;
        if self.is_operator(&attempt) {
            self.attempts.succeeded(&attempt);
            let named = named.ok_or_else(|| {
                let message =
                    format!("the operator's key needs the tenant's id in the header {TENANT_HEADER}");
                Invalid::TenantMissing.because(message)
            })?;
            let id = named.parse().map_err(|_| Invalid::Tenant.because("the tenant's id must be a UUID"))?;
            return Ok(Principal::operator_for(Account::of(&self.store.get_tenant(id).await?)));
        }
        let Some(owner) = self.find(&attempt.sha256).await? else {
            self.attempts.failed(&attempt, Instant::now());
            self.refused.note(key);
            return Err(Error::KeyUnknown);
        };
        self.attempts.succeeded(&attempt);
        if named.is_some_and(|named| named.parse() != Ok(owner.tenant.id)) {
            return Err(Error::NotFound(Entity::Tenant));
        }
        let account = Account::of(&owner.tenant);
        Ok(Principal::of_tenant(owner, attempt.sha256, account))
    }

    /// The keys that have open streams.
    pub(crate) fn live(&self) -> &Arc<LiveKeys> {
        &self.live
    }

    /// The unknown keys that were refused.
    pub(crate) fn refused(&self) -> &Arc<RefusedKeys> {
        &self.refused
    }

    /// Looks all keys up again, after a change of a key or of a tenant's limits.
    pub(crate) fn forget(&self) {
        self.cache.clear(Instant::now());
    }

    async fn find(&self, sha256: &[u8; 32]) -> Result<Option<KeyOwner>, Error> {
        let now = Instant::now();
        if let Some(owner) = self.cache.find(sha256, now) {
            return Ok(Some(owner));
        }
        let found = self.store.find_key(sha256).await?;
        if let Some(owner) = &found {
            self.cache.put(*sha256, owner.clone(), now);
        }
        Ok(found)
    }

    /// Finds the operator, who acts for no tenant.
    ///
    /// # Errors
    /// `operator_only`, `too_many_attempts`.
    pub(crate) fn authenticate_operator(&self, credentials: Credentials<'_>) -> Result<Principal, Error> {
        let attempt = Attempt::new(credentials.key, credentials.client);
        self.attempts.check(&attempt, Instant::now())?;
        if self.is_operator(&attempt) {
            self.attempts.succeeded(&attempt);
            return Ok(Principal::operator());
        }
        // A known tenant key does not count as a guess at the operator's key.
        if !self.attempts.knows(&attempt) {
            self.attempts.failed(&attempt, Instant::now());
            self.refused.note(credentials.key);
        }
        Err(Error::OperatorOnly("only the operator's key allows this"))
    }

    /// Whether the key is the operator's. Another key is no guess: it may be a tenant's.
    ///
    /// # Errors
    /// `too_many_attempts`.
    pub(crate) fn is_operators(&self, credentials: Credentials<'_>) -> Result<bool, Error> {
        let attempt = Attempt::new(credentials.key, credentials.client);
        self.attempts.check(&attempt, Instant::now())?;
        Ok(self.is_operator(&attempt))
    }

    fn is_operator(&self, attempt: &Attempt) -> bool {
        let operator = self.operator_sha256.as_ref();
        operator.is_some_and(|sha256| sha256.ct_eq(&attempt.sha256).into())
    }
}
