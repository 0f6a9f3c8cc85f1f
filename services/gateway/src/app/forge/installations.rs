//! The App of the deployment, and the installations of tenants.

use crate::{
    app::gateway::Gateway,
    auth::principal::Principal,
    errors::{error::Error, invalid::Invalid},
    scope::Scope,
    state::State,
};
use chassis::secret::SecretBytes;
use domain::policy::level::Level;
use domain::{ids::TenantId, pull_request::thread::BRANCH_PREFIX, secret::FORGE_APP};
use rpc::v1::{self, ErrorCode};
use serde_json::{Map, Value, json};
use settings::standing;
use store::{error::Error as StoreError, tenant::forge::Installation};

/// The forge of a setup that names none.
const API_URL: &str = "https://api.github.com";
const WEB_URL: &str = "https://github.com";

/// An App that is to be set up. Empty URLs: those of github.com.
#[derive(Debug)]
pub(crate) struct AppSetup {
    pub(crate) app_id: u64,
    pub(crate) api_url: String,
    pub(crate) web_url: String,
    pub(crate) private_key: SecretBytes,
    pub(crate) webhook_secret: SecretBytes,
}

/// What a tenant sees of the forge.
#[derive(Debug)]
pub(crate) struct ForgeStatus {
    /// `None`: this deployment has no App.
    pub(crate) app: Option<v1::ForgeApp>,
    pub(crate) installations: Vec<Installation>,
}

/// An installation that a tenant has got.
#[derive(Debug)]
pub(crate) struct BoundInstallation {
    pub(crate) installation: Installation,
    /// What the settings of the tenant lack, if it could not be added.
    pub(crate) missing_settings: String,
}

/// Stores the App of this deployment, in place of an earlier one.
///
/// # Errors
/// `operator_only`; `forge_url_invalid`, `forge_key_invalid`, `forge_unauthorized` and other codes of the forge; `broker_unavailable`, `broker_failed`.
pub(crate) async fn set_up(
    gateway: &Gateway,
    principal: &Principal,
    setup: AppSetup,
) -> Result<v1::ForgeApp, Error> {
    principal.require(Scope::Operate)?;
    let AppSetup { app_id, api_url, web_url, private_key, webhook_secret } = setup;
    let or = |url: String, usual: &str| if url.is_empty() { usual.to_owned() } else { url };
    let request = v1::PutForgeAppRequest {
        app_id,
        api_url: or(api_url, API_URL),
        web_url: or(web_url, WEB_URL),
        private_key: private_key.expose().to_vec(),
        webhook_secret: webhook_secret.expose().to_vec(),
        actor: principal.name().to_owned(),
    };
    Ok(gateway.state.forge.put_app(request).await?.app.unwrap_or_default())
}

/// Returns the App, and the installations of the tenant.
///
/// # Errors
/// `scope_missing`; `broker_unavailable`, `broker_failed`, `store_unavailable`.
pub(crate) async fn status(gateway: &Gateway, principal: &Principal) -> Result<ForgeStatus, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let app = match state.forge.get_app(v1::GetForgeAppRequest {}).await {
        Ok(found) => found.app,
        Err(error) if error.code() == ErrorCode::ForgeAppMissing.as_str() => None,
        Err(error) => return Err(error),
    };
    Ok(ForgeStatus { app, installations: state.store.list_installations(tenant).await? })
}

/// Gives an installation to a tenant, lets its sessions read and push the repositories, and has what came meanwhile processed.
///
/// # Errors
/// `operator_only`, `tenant_not_found`, `installation_taken`; `forge_not_found` and other codes of the forge; `broker_unavailable`, `broker_failed`,
/// `store_unavailable`: bound or not.
pub(crate) async fn bind(
    gateway: &Gateway,
    principal: &Principal,
    tenant: TenantId,
    id: u64,
) -> Result<BoundInstallation, Error> {
    principal.require(Scope::Operate)?;
    let state = &gateway.state;
    state.store.get_tenant(tenant).await?;
    let app = state.forge.get_app(v1::GetForgeAppRequest {}).await?.app.unwrap_or_default();
    let found = state.forge.get_installation(v1::GetForgeInstallationRequest { installation_id: id }).await?;
    let store = principal.acting(&state.store);
    let bound = store.bind_installation(tenant, id, &found.account, principal.name()).await;
    let installation = bound.map_err(|error| match error {
        StoreError::Conflict => Error::InstallationTaken,
        error => error.into(),
    })?;
    let prefix = format!("{}/{}/", app.web_url, found.account);
    let missing_settings = allow(state, principal, tenant, &prefix).await?;
    let id = i64::try_from(id).map_err(|_| Invalid::Tenant.because("no installation has such a number"))?;
    state.store.renew_dead_deliveries(id).await?;
    state.deliveries.notify_one();
    Ok(BoundInstallation { installation, missing_settings })
}

/// Lets the sessions of a tenant read the repositories below a prefix, and people and jobs push their branches. Returns what an admin must add, if the settings of the
/// tenant have a form that only a person can change; empty: nothing.
async fn allow(
    state: &State,
    principal: &Principal,
    tenant: TenantId,
    prefix: &str,
) -> Result<String, Error> {
    let stored = state.store.list_settings(tenant, None).await?;
    let before = stored.into_iter().find(|stored| stored.level == Level::Tenant);
    let before = before.map_or_else(|| "{}".to_owned(), |stored| stored.document);
    let Some(document) = with_repositories(&before, prefix) else {
        return Ok(rules(prefix).to_string());
    };
    if document == before {
        return Ok(String::new());
    }
    standing::stored(Level::Tenant, &document)
        .map_err(|problems| Invalid::Settings.because(problems.to_string()))?;
    principal.acting(&state.store).put_settings(tenant, None, &document, principal.name()).await?;
    Ok(String::new())
}

/// The settings that let sessions read and push the repositories.
fn rules(prefix: &str) -> Value {
    let push = json!({"credential": FORGE_APP, "branches": BRANCH_PREFIX, "deny": [".github/**"]});
    json!({"environment": {"git": {"credentials": {prefix: FORGE_APP}, "push": {prefix: push}}}})
}

/// A document with these settings. What it says of the prefix already stays. `None`: it is no plain JSON object, and a person must change it.
fn with_repositories(document: &str, prefix: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(document).ok()?;
    let is_whole = add(value.as_object_mut()?, rules(prefix).as_object()?);
    is_whole
        .then(|| value.to_string())
        .map(|changed| if same(document, &changed) { document.to_owned() } else { changed })
}

fn same(one: &str, other: &str) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    parse(one) == parse(other)
}

/// Adds what is missing. False: something else stands where an object belongs.
fn add(target: &mut Map<String, Value>, new: &Map<String, Value>) -> bool {
    new.iter().all(|(key, value)| match (target.get_mut(key), value) {
        (None, value) => {
            target.insert(key.clone(), value.clone());
            true
        }
        (Some(Value::Object(inner)), Value::Object(new))
            if key != "push" || !new.keys().any(|prefix| inner.contains_key(prefix)) =>
        {
            add(inner, new)
        }
        (Some(Value::Object(_)), Value::Object(_)) => true,
        (Some(there), _) => !there.is_object() && !value.is_object(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const PREFIX: &str = "https://github.com/acme/";

    #[test]
    fn settings_get_what_is_missing_and_keep_the_rest() {
        let added = with_repositories("{}", PREFIX).unwrap();
        assert!(standing::stored(Level::Tenant, &added).is_ok(), "{added}");
        assert_eq!(with_repositories(&added, PREFIX).unwrap(), added, "again");
        let own = json!({
            "model": "a/b",
            "environment": {"git": {
                "credentials": {PREFIX: "MY_TOKEN"},
                "push": {PREFIX: {"credential": "MY_TOKEN", "branches": "bot/"}},
            }},
        });
        assert_eq!(with_repositories(&own.to_string(), PREFIX).unwrap(), own.to_string());
        let other = with_repositories(&own.to_string(), "https://github.com/other/").unwrap();
        let other: Value = serde_json::from_str(&other).unwrap();
        assert_eq!(other["environment"]["git"]["credentials"]["https://github.com/other/"], FORGE_APP);
        assert_eq!(other["environment"]["git"]["push"][PREFIX]["credential"], "MY_TOKEN");
        for odd in ["// a comment\n{}", "[]", "{\"environment\": 1}"] {
            assert_eq!(with_repositories(odd, PREFIX), None, "{odd}");
        }
    }
}
