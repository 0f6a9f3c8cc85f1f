//! Tenants, their API keys, and the audit.

use super::{
    checks,
    gateway::Gateway,
    page::{List, PageRequest, is_text},
};
use crate::{
    auth::{key::NewKey, principal::Principal},
    errors::{entity::Entity, error::Error, invalid::Invalid},
    scope::Scope,
};
use bus::queue::TenantShare;
use domain::{
    ids::TenantId,
    limits,
    policy::{
        quota::{PlatformQuota, TenantQuota, Usage},
        role::Role,
    },
};
use store::{
    audit::{AuditEntry, AuditScope},
    control::tenants::TenantPatch,
    tenant::{keys::Key, retention::Retention, tenants::Tenant},
};

/// Largest weight of a tenant; the least is 1. Beyond it: `limit_too_high`.
const TENANT_WEIGHT_MAX: u32 = 1_000;
/// Most days for which a tenant keeps sessions, unless it keeps them for ever: a hundred years. Beyond it: `limit_too_high`.
const KEEP_DAYS_MAX: u32 = 36_500;

/// The operator's change of a tenant. 0 leaves a limit unchanged.
#[derive(Debug, Clone, Default)]
pub(crate) struct TenantChange {
    pub(crate) running_max: u32,
    pub(crate) weight: u32,
    /// `None` leaves the number of days unchanged; 0: for ever.
    pub(crate) retention: Retention,
    /// `None` leaves the quota of a resource unchanged.
    pub(crate) quota: TenantQuota,
}

/// Creates a tenant, or returns the existing one with this name.
///
/// # Errors
/// `operator_only`, `name_empty`, `name_too_long`, `name_invalid`, `store_unavailable`.
pub(crate) async fn create(gateway: &Gateway, principal: &Principal, name: &str) -> Result<Tenant, Error> {
    principal.require(Scope::Operate)?;
    let name = checks::name(name)?;
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(Invalid::Name.because("a tenant name can have only letters, digits and dashes"));
    }
    Ok(principal.acting(&gateway.state.store).create_tenant(TenantId(uuid::Uuid::now_v7()), &name).await?)
}

/// Changes the limits of a tenant.
///
/// # Errors
/// `operator_only`, `tenant_missing`, `tenant_not_found`, `limit_too_high`, `store_unavailable`.
pub(crate) async fn update(
    gateway: &Gateway,
    principal: &Principal,
    id: &str,
    change: TenantChange,
) -> Result<Tenant, Error> {
    principal.require(Scope::Operate)?;
    let (state, id) = (&gateway.state, parse(id)?);
    let running_max = check_limit("running_max", change.running_max, limits::TENANT_RUNNING_MOST)?;
    let weight = check_limit("weight", change.weight, TENANT_WEIGHT_MAX)?;
    let retention = change.retention;
    for (name, days) in
        [("keep_idle_days", retention.idle_days), ("keep_archived_days", retention.archived_days)]
    {
        check_limit(name, days.unwrap_or_default(), KEEP_DAYS_MAX)?;
    }
    let tenant = principal
        .acting(&state.store)
        .update_tenant(id, TenantPatch { running_max, weight, retention, quota: change.quota })
        .await?;
    gateway.forget_keys();
    state.quotas.forget(id);
    let share = TenantShare { running_max: tenant.running_max, weight: tenant.weight };
    if let Err(error) = state.bus.set_share(id, share).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "cannot set the tenant's share in Redis; its next prompt will set it");
    }
    Ok(tenant)
}

/// Deletes a tenant with everything that belongs to it. `name` is the tenant's name once more, so that nobody deletes another one by mistake.
///
/// # Errors
/// `operator_only`, `tenant_missing`, `tenant_not_found`, `tenant_name_wrong`, `store_unavailable`.
// Continues in worker::upkeep::tenants, which removes the data.
pub(crate) async fn delete(
    gateway: &Gateway,
    principal: &Principal,
    id: &str,
    name: &str,
) -> Result<(), Error> {
    principal.require(Scope::Operate)?;
    let tenant = gateway.state.store.get_tenant(parse(id)?).await?;
    if tenant.name != name {
        let message = "this is not the name of the tenant; repeat the name to delete the tenant";
        return Err(Invalid::TenantName.because(message));
    }
    let deleted = principal.acting(&gateway.state.store).delete_tenant(tenant.id).await;
    // Also if the outcome is in doubt.
    gateway.forget_keys();
    deleted?;
    tracing::info!(tenant.id = %tenant.id, "an operator deleted a tenant");
    Ok(())
}

fn check_limit(name: &str, value: u32, max: u32) -> Result<Option<u32>, Error> {
    if value > max {
        return Err(Invalid::LimitTooHigh.because(format!("{name} is {value}, the limit is {max}")));
    }
    Ok((value > 0).then_some(value))
}

/// Lists tenants by name.
///
/// # Errors
/// `operator_only`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    page: PageRequest,
) -> Result<List<Tenant>, Error> {
    principal.require(Scope::Operate)?;
    let page = page.check(is_text)?;
    let tenants = gateway.state.store.list_tenants(&page).await?;
    Ok(List::of(&page, tenants, |tenant| tenant.name.clone()))
}

/// What a tenant stores, and what it may store.
pub(crate) struct UsageEntry {
    pub(crate) tenant: Tenant,
    pub(crate) usage: Usage,
    pub(crate) limits: PlatformQuota,
}

/// Lists what tenants store, by name. `tenant` names one of them; the operator may leave it out. See [`managed_tenant`].
///
/// # Errors
/// `tenant_missing`, `tenant_not_found`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_usage(
    gateway: &Gateway,
    principal: &Principal,
    tenant: &str,
    page: PageRequest,
) -> Result<List<UsageEntry>, Error> {
    let (store, platform) = (&gateway.state.store, gateway.state.quotas.platform());
    let entry = |(tenant, usage): (Tenant, Usage)| UsageEntry {
        limits: tenant.quota.limits(platform),
        tenant,
        usage,
    };
    if principal.has(Scope::Operate) && tenant.is_empty() {
        let page = page.check(is_text)?;
        let entries = store.list_usage(&page).await?.into_iter().map(entry).collect();
        return Ok(List::of(&page, entries, |entry| entry.tenant.name.clone()));
    }
    let tenant = managed_tenant(gateway, principal, tenant, Scope::Read).await?;
    let found = (store.get_tenant(tenant).await?, store.count_usage(tenant).await?);
    Ok(List { entries: vec![entry(found)], next: None })
}

/// Lists lines, the newest first. `tenant` names a tenant; the operator may leave it out. See [`managed_tenant`].
///
/// # Errors
/// `scope_missing`, `tenant_missing`, `tenant_not_found`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_audit(
    gateway: &Gateway,
    principal: &Principal,
    tenant: &str,
    page: PageRequest,
) -> Result<List<AuditEntry>, Error> {
    let scope = if principal.has(Scope::Operate) && tenant.is_empty() {
        AuditScope::Deployment
    } else {
        AuditScope::Tenant(managed_tenant(gateway, principal, tenant, Scope::Manage).await?)
    };
    let page = page.check(|cursor| cursor.parse::<i64>().is_ok())?;
    let entries = gateway.state.store.list_audit(scope, &page).await?;
    Ok(List::of(&page, entries, |entry| entry.seq.to_string()))
}

/// A new key with its secret, which only its creator ever sees.
pub(crate) struct IssuedKey {
    pub(crate) key: Key,
    pub(crate) secret: String,
}

/// Creates a key of a tenant; see [`managed_tenant`].
///
/// # Errors
/// `tenant_missing`, `tenant_not_found`, `name_empty`, `name_too_long`, `name_invalid`, `store_unavailable`.
pub(crate) async fn create_key(
    gateway: &Gateway,
    principal: &Principal,
    tenant: &str,
    name: &str,
    role: Role,
) -> Result<IssuedKey, Error> {
    let tenant = managed_tenant(gateway, principal, tenant, Scope::Manage).await?;
    let (new, name) = (NewKey::make(), key_name(name)?);
    let key = principal
        .acting(&gateway.state.store)
        .create_key(tenant, &new.prefix, &new.sha256, &name, role)
        .await?;
    Ok(IssuedKey { key, secret: new.secret })
}

/// Checks the name of a key, which the audit shows as that of who acted.
fn key_name(name: &str) -> Result<String, Error> {
    let name = checks::name(name)?;
    if name.chars().any(char::is_control) {
        return Err(
            Invalid::Name.because("the name of a key has no line breaks and other control characters")
        );
    }
    if ["operator", "unknown"].contains(&name.as_str()) || name.starts_with("postgres:") {
        let message = format!("the audit calls others {name}; choose another name");
        return Err(Invalid::Name.because(message));
    }
    Ok(name)
}

/// Lists the keys of a tenant; see [`managed_tenant`].
///
/// # Errors
/// `tenant_missing`, `tenant_not_found`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_keys(
    gateway: &Gateway,
    principal: &Principal,
    tenant: &str,
    page: PageRequest,
) -> Result<List<Key>, Error> {
    let tenant = managed_tenant(gateway, principal, tenant, Scope::Manage).await?;
    let page = page.check(is_text)?;
    let keys = gateway.state.store.list_keys(tenant, &page).await?;
    Ok(List::of(&page, keys, |key| key.prefix.clone()))
}

/// Revokes a key of a tenant by its prefix; see [`managed_tenant`].
///
/// # Errors
/// `tenant_missing`, `tenant_not_found`, `key_not_found`, `store_unavailable`.
pub(crate) async fn revoke_key(
    gateway: &Gateway,
    principal: &Principal,
    tenant: &str,
    prefix: &str,
) -> Result<(), Error> {
    let tenant = managed_tenant(gateway, principal, tenant, Scope::Manage).await?;
    if !is_text(prefix) {
        return Err(Error::NotFound(Entity::Key));
    }
    let revoked =
        principal.acting(&gateway.state.store).revoke_key(tenant, prefix).await.map_err(Error::from);
    // Also if the outcome is in doubt.
    gateway.forget_keys();
    match revoked {
        Err(Error::NotFound(_)) => Err(Error::NotFound(Entity::Key)),
        revoked => revoked,
    }
}

/// The tenant whose keys a call manages: the caller's own tenant or, for the operator, the tenant that the call
/// names.
async fn managed_tenant(
    gateway: &Gateway,
    principal: &Principal,
    name: &str,
    scope: Scope,
) -> Result<TenantId, Error> {
    if principal.has(Scope::Operate) {
        return Ok(gateway.state.store.get_tenant(parse(name)?).await?.id);
    }
    let own = principal.tenant(scope)?;
    if name.is_empty() || name.parse() == Ok(own) { Ok(own) } else { Err(Error::NotFound(Entity::Tenant)) }
}

fn parse(id: &str) -> Result<TenantId, Error> {
    id.parse().map_err(|_| Invalid::TenantMissing.because("name the tenant by its id, a UUID"))
}
