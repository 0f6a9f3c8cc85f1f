//! The operator's preparation before the first start: migrate the database, create a tenant with a key.

use crate::auth::key::{self, NewKey};
use anyhow::Context as _;
use domain::{ids::TenantId, policy::role::Role};
use store::{
    Store,
    migrate::{Migrated, Passwords},
};

/// The values that a stack needs to start.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// The tenant's id, a UUID.
    pub tenant_id: String,
    /// A new API key of the tenant; `None` if the caller keeps its own.
    pub api_key: Option<String>,
    /// Postgres as the role that sees one tenant at a time.
    pub app_url: String,
    /// Postgres as the role of the queries that cross tenants.
    pub system_url: String,
    /// Postgres as the broker's role.
    pub broker_url: String,
}

/// Whether to create an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    New,
    /// Keep the caller's key if the tenant has this id; otherwise create a new one.
    Keep {
        /// [`Bootstrap::tenant_id`] of an earlier start.
        tenant_id: &'a str,
    },
}

/// The passwords of the roles of the services.
#[derive(Clone, Copy)]
pub struct RolePasswords<'a> {
    /// Of `flotilla_app` and `flotilla_system`, which gateways and workers log in as.
    pub services: &'a str,
    /// Of `flotilla_broker`.
    pub broker: &'a str,
}

/// Brings the database up to date; see [`store::migrate::migrate`].
///
/// # Errors
/// If the database cannot be reached or migrated.
pub async fn migrate(migrator_url: &str, passwords: Option<RolePasswords<'_>>) -> anyhow::Result<Migrated> {
    let passwords = passwords.map(|RolePasswords { services, broker }| Passwords { services, broker });
    Ok(store::migrate::migrate(migrator_url, passwords).await?)
}

/// Why this version cannot work with the database, in a sentence, if it cannot.
///
/// # Errors
/// If the database cannot be reached.
pub async fn find_schema_problem(migrator_url: &str) -> anyhow::Result<Option<String>> {
    Ok(store::migrate::check(migrator_url).await?.map(|problem| problem.to_string()))
}

/// Migrates the database at `migrator_url` (a login that may create roles), sets passwords for Flotilla's roles, and creates
/// `tenant` and, as `api_key` says, an API key. Safe to repeat.
///
/// # Errors
/// If the database cannot be reached or migrated.
pub async fn bootstrap(migrator_url: &str, tenant: &str, api_key: Key<'_>) -> anyhow::Result<Bootstrap> {
    let (password, broker_password) = (key::random_text(), key::random_text());
    let passwords = Passwords { services: &password, broker: &broker_password };
    Box::pin(store::migrate::migrate(migrator_url, Some(passwords))).await?;
    let app_url = with_login(migrator_url, "flotilla_app", &password)?;
    let system_url = with_login(migrator_url, "flotilla_system", &password)?;
    let broker_url = with_login(migrator_url, "flotilla_broker", &broker_password)?;
    let store = Store::connect(&app_url, &system_url, 1)?;
    let created =
        store.create_tenant(TenantId(uuid::Uuid::now_v7()), tenant).await.context("create the tenant")?;
    let tenant_id = created.id.0.to_string();
    let api_key = if api_key == (Key::Keep { tenant_id: &tenant_id }) {
        None
    } else {
        let new = NewKey::make();
        let stored = store.create_key(created.id, &new.prefix, &new.sha256, "bootstrap", Role::Admin).await;
        stored.context("create the key")?;
        Some(new.secret)
    };
    store.close().await;
    Ok(Bootstrap { tenant_id, api_key, app_url, system_url, broker_url })
}

/// The URL of the same database with another login.
fn with_login(url: &str, user: &str, password: &str) -> anyhow::Result<String> {
    let (scheme, rest) = url.split_once("://").with_context(|| "the database URL has no scheme")?;
    let (authority, tail) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Ok(format!("{scheme}://{user}:{password}@{host}/{tail}"))
}

#[cfg(test)]
mod tests {
    use super::with_login;

    #[test]
    fn a_login_fits_into_any_url() {
        for (url, want) in [
            ("postgres://a:b@h:5/d?x=1", "postgres://u:p@h:5/d?x=1"),
            ("postgres://h/d", "postgres://u:p@h/d"),
            ("postgres://a@/d?host=/run/pg", "postgres://u:p@/d?host=/run/pg"),
        ] {
            assert_eq!(with_login(url, "u", "p").ok().as_deref(), Some(want));
        }
    }
}
