//! The App of this deployment at GitHub.

use super::{
    answers::AppAnswer,
    api::{Api, ApiCall},
    app::{App, Credentials, NewApp, parse_url},
    pace::Pace,
    tokens::{GitUse, Purpose, Token, TokenKey, TokenScope, Tokens},
};
use crate::{
    forge::{error::ForgeError, repository::Repository},
    outside::names::Names,
    secrets::vault::Vault,
};
use chassis::{lock, telemetry::AUDIT};
use domain::{egress::git::GitAddress, ids::TenantId, pull_request::permission::Permission};
use reqwest::{Certificate, Method, header::HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use store::broker::{
    BrokerStore,
    forge::{ForgeApp, SealedApp},
};
use tokio::time::{Instant, sleep};

/// Time for which the App is known without another look at the database.
const APP_KEPT: Duration = Duration::from_secs(5);
/// Pauses before the same call with a new token that GitHub does not know everywhere yet.
const YOUNG_TOKEN_PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// The tenant of calls of the App itself, which are for no tenant.
const NO_TENANT: TenantId = TenantId(uuid::Uuid::nil());

/// How a broker calls GitHub.
#[derive(Debug, Clone, Copy)]
pub struct GithubSettings<'a> {
    /// Authorities that it trusts in addition to those of this machine.
    pub authorities: &'a [Certificate],
    /// Between two writes of one installation.
    pub write_gap: Duration,
}

/// The App, with the tokens that it got.
pub struct Github {
    store: BrokerStore,
    vault: Arc<Vault>,
    api: Api,
    tokens: Tokens,
    pub(super) pace: Pace,
    app: Mutex<Option<(Instant, Arc<App>)>>,
    pub(super) permissions: Mutex<Permissions>,
}

/// What people may do, and when that was asked, by installation, repository and login.
pub(super) type Permissions = HashMap<(u64, u64, String), (Instant, Permission)>;

/// A call about a repository.
#[derive(Debug, Clone, Copy)]
pub(super) struct RepositoryCall<'a> {
    pub(super) repository: &'a Repository,
    pub(super) purpose: Purpose,
    pub(super) method: &'a Method,
    /// Behind "/repos/acme/app".
    pub(super) path: &'a str,
    pub(super) body: Option<&'a Value>,
}

impl std::fmt::Debug for Github {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Github").finish_non_exhaustive()
    }
}

impl Github {
    /// The App that the database has, if it has one.
    ///
    /// # Errors
    /// The certificates of this system cannot be used.
    pub fn new(
        store: BrokerStore,
        vault: Arc<Vault>,
        names: Arc<Names>,
        settings: GithubSettings<'_>,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self {
            store,
            vault,
            api: Api::new(names, settings.authorities)?,
            tokens: Tokens::default(),
            pace: Pace::new(settings.write_gap),
            app: Mutex::default(),
            permissions: Mutex::default(),
        })
    }

    /// Stores the App in place of an earlier one, after GitHub has said that it knows it.
    ///
    /// # Errors
    /// `UrlInvalid`, `KeyInvalid`; those of the call; `Vault`, `Store`.
    pub(crate) async fn put_app(&self, new: NewApp) -> Result<ForgeApp, ForgeError> {
        let (api, _) = (parse_url(&new.api_url)?, parse_url(&new.web_url)?);
        let earlier = self.store.find_forge_app().await?;
        let opened = match &earlier {
            // One that no key opens any more must not prevent a new one.
            Some(earlier) => self.vault.open_app(&earlier.sealed, earlier.version).await.ok(),
            None => None,
        };
        let sealed = new.to_sealed(opened.as_ref())?;
        let NewApp { app_id, api_url, web_url, actor, .. } = new;
        let facts = ForgeApp { app_id, slug: String::new(), api_url, web_url };
        let app = App { facts, version: 0, api, credentials: Credentials::parse(&sealed)? };
        let proof = app.proof()?;
        let call = self.of_app(&app, &proof, "/app");
        let found: AppAnswer = self.api.send(call).await?;
        if found.id != app_id {
            return Err(ForgeError::Refused(format!("the key is that of the App {}", found.id)));
        }
        let facts = ForgeApp { slug: found.slug, ..app.facts };
        let version = earlier.map_or(0, |earlier| earlier.version) + 1;
        let stored =
            SealedApp { app: facts.clone(), version, sealed: self.vault.seal_app(&sealed, version).await? };
        if !self.store.put_forge_app(&stored, &actor).await? {
            return Err(ForgeError::Refused("somebody else has set the App at the same time".to_owned()));
        }
        *lock(&self.app) = None;
        tracing::info!(target: AUDIT, { app.id = app_id, app.slug = facts.slug, actor }, "the App at the forge was set");
        Ok(facts)
    }

    /// What everybody may know of the App.
    ///
    /// # Errors
    /// `AppMissing`, `Store`, `Vault`.
    pub(crate) async fn facts(&self) -> Result<ForgeApp, ForgeError> {
        Ok(self.app().await?.facts.clone())
    }

    /// Checks that GitHub has signed a delivery.
    ///
    /// # Errors
    /// `AppMissing`, `SignatureInvalid`, `Store`, `Vault`.
    pub(crate) async fn check_delivery(&self, body: &[u8], signature: &str) -> Result<(), ForgeError> {
        let app = self.app().await?;
        if app.credentials.has_signed(body, signature) { Ok(()) } else { Err(ForgeError::SignatureInvalid) }
    }

    /// The header that opens a repository for git, if an installation of the tenant covers it. `None`: none does.
    ///
    /// # Errors
    /// Those of the call; `Store`, `Vault`.
    pub(crate) async fn git_authorization(
        &self,
        tenant: TenantId,
        repository: &GitAddress,
        git_use: GitUse,
    ) -> Result<Option<HeaderValue>, ForgeError> {
        let app = match self.app().await {
            Err(ForgeError::AppMissing) => return Ok(None),
            app => app?,
        };
        let web = parse_url(&app.facts.web_url)?;
        let Some((owner, name)) = below(&web, repository) else { return Ok(None) };
        let Some(installation) = self.store.find_installation(tenant, &owner).await? else { return Ok(None) };
        let key = TokenKey { installation, scope: TokenScope::Name(name), purpose: Purpose::Git(git_use) };
        Ok(Some(self.tokens.get(&self.api, &app, tenant, &key).await?.basic))
    }

    /// Calls the API as the App itself. Returns the answer, and the cursor of the next page of a list.
    ///
    /// # Errors
    /// Those of the call; `AppMissing`, `Store`, `Vault`.
    pub(super) async fn call_as_app<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
    ) -> Result<(T, Option<String>), ForgeError> {
        let app = self.app().await?;
        let proof = app.proof()?;
        self.api.send_for_page(ApiCall { method, ..self.of_app(&app, &proof, path) }).await
    }

    fn of_app<'a>(&self, app: &'a App, proof: &'a HeaderValue, path: &'a str) -> ApiCall<'a> {
        ApiCall {
            base: &app.api,
            tenant: NO_TENANT,
            method: &Method::GET,
            path,
            authorization: proof,
            body: None,
        }
    }

    /// Calls the API for a repository, with a token that allows nothing else.
    ///
    /// # Errors
    /// `InstallationNotFound`: it is none of the tenant; those of the call; `AppMissing`, `Store`, `Vault`.
    ///
    /// Dropped midway: the call was done or not.
    pub(super) async fn call<T: DeserializeOwned>(&self, call: RepositoryCall<'_>) -> Result<T, ForgeError> {
        let Repository { tenant, installation, id, name } = call.repository;
        if !self.store.has_installation(*tenant, *installation).await? {
            return Err(ForgeError::InstallationNotFound(*installation));
        }
        let app = self.app().await?;
        let key = TokenKey { installation: *installation, scope: TokenScope::Id(*id), purpose: call.purpose };
        let path = format!("/repos/{name}{}", call.path);
        let mut pauses = YOUNG_TOKEN_PAUSES.into_iter();
        loop {
            self.pace.check(*installation)?;
            let token = self.tokens.get(&self.api, &app, *tenant, &key).await;
            let token = token.inspect_err(|error| self.note(*installation, error))?;
            let sent = ApiCall {
                base: &app.api,
                tenant: *tenant,
                method: call.method,
                path: &path,
                authorization: &token.bearer,
                body: call.body,
            };
            match self.api.send(sent).await {
                Err(ForgeError::Unauthorized(reason)) => {
                    self.recover(&key, &token, reason, &mut pauses).await?;
                }
                answer => return answer.inspect_err(|error| self.note(*installation, error)),
            }
        }
    }

    /// Waits until GitHub may know a new token. One that is older is forgotten.
    ///
    /// # Errors
    /// `Unauthorized`: it had time enough.
    async fn recover(
        &self,
        key: &TokenKey,
        token: &Token,
        reason: String,
        pauses: &mut impl Iterator<Item = Duration>,
    ) -> Result<(), ForgeError> {
        let Some(pause) = pauses.next().filter(|_| token.is_young()) else {
            self.tokens.forget(key);
            return Err(ForgeError::Unauthorized(reason));
        };
        sleep(pause).await;
        Ok(())
    }

    fn note(&self, installation: u64, error: &ForgeError) {
        if let ForgeError::Busy(pause) = error {
            metrics::counter!("flotilla_forge_limits_total").increment(1);
            self.pace.pause(installation, *pause);
        }
    }

    /// The App, from the database at most some seconds ago.
    async fn app(&self) -> Result<Arc<App>, ForgeError> {
        let known = lock(&self.app).clone();
        if let Some((_, app)) = known.as_ref().filter(|(read_at, _)| read_at.elapsed() < APP_KEPT) {
            return Ok(Arc::clone(app));
        }
        let SealedApp { app: facts, version, sealed } =
            self.store.find_forge_app().await?.ok_or(ForgeError::AppMissing)?;
        let app = match known.filter(|(_, app)| app.version == version) {
            Some((_, app)) => app,
            None => {
                let credentials = Credentials::parse(&self.vault.open_app(&sealed, version).await?)?;
                Arc::new(App { api: parse_url(&facts.api_url)?, facts, version, credentials })
            }
        };
        *lock(&self.app) = Some((Instant::now(), Arc::clone(&app)));
        Ok(app)
    }
}

/// The owner and the name of a repository of the forge whose pages begin at `web`. `None`: it is at another place.
fn below(web: &GitAddress, repository: &GitAddress) -> Option<(String, String)> {
    if (web.host(), web.port()) != (repository.host(), repository.port()) {
        return None;
    }
    let path = repository.path();
    let mut segments = path.strip_prefix(&web.path())?.trim_start_matches('/').split('/');
    let (owner, name) = (segments.next()?, segments.next()?);
    let name = name.strip_suffix(".git").unwrap_or(name);
    let is_whole = segments.next().is_none() && !owner.is_empty() && !name.is_empty();
    is_whole.then(|| (owner.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_repository_of_the_forge_has_an_owner_and_a_name() {
        let parse = |url: &str| GitAddress::parse_url(url).unwrap();
        for (web, repository, want) in [
            ("https://github.com", "https://github.com/acme/app.git", Some(("acme", "app"))),
            ("https://github.com", "https://github.com/acme/app", Some(("acme", "app"))),
            ("https://dev.acme/git", "https://dev.acme/git/acme/app", Some(("acme", "app"))),
            ("https://github.com", "https://gitlab.com/acme/app", None),
            ("https://github.com", "https://github.com:8443/acme/app", None),
            ("https://github.com", "https://github.com/acme", None),
            ("https://github.com", "https://github.com/acme/app/info", None),
            ("https://dev.acme/git", "https://dev.acme/other/acme/app", None),
        ] {
            let want = want.map(|(owner, name)| (owner.to_owned(), name.to_owned()));
            assert_eq!(below(&parse(web), &parse(repository)), want, "{repository}");
        }
    }
}
