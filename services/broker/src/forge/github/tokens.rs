//! Tokens of installations: each for one repository and one purpose, for at most an hour. They stay in this process.

use super::{
    answers::TokenAnswer,
    api::{Api, ApiCall},
    app::App,
};
use crate::{
    credential::{basic, bearer},
    forge::error::ForgeError,
};
use chassis::lock;
use domain::ids::TenantId;
use reqwest::{Method, header::HeaderValue};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Mutex, time::Duration};
use tokio::time::Instant;
use zeroize::Zeroizing;

/// Time after which another token is fetched. GitHub's are valid for an hour.
const TOKEN_KEPT: Duration = Duration::from_secs(50 * 60);
/// Time in which GitHub may not know a new token everywhere.
const TOKEN_YOUNG: Duration = Duration::from_secs(15);
/// Tokens that are kept. Beyond it, the old ones are forgotten.
const TOKENS_MAX: usize = 10_000;
/// The user of a token at the server of git.
const TOKEN_USER: &str = "x-access-token";

/// What a token is for. It has no other rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Who may do what, and what a pull request is.
    Look,
    /// Comments, reactions and checks, and pull requests.
    Show,
    Git(GitUse),
}

/// What git does with a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum GitUse {
    Read,
    Push,
}

impl Purpose {
    fn permissions(self) -> Value {
        match self {
            Self::Look => json!({"metadata": "read", "pull_requests": "read"}),
            Self::Show => json!({"issues": "write", "pull_requests": "write", "checks": "write"}),
            Self::Git(GitUse::Read) => json!({"contents": "read"}),
            Self::Git(GitUse::Push) => json!({"contents": "write"}),
        }
    }
}

/// The repository of a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TokenScope {
    Id(u64),
    /// Without its owner.
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TokenKey {
    pub(super) installation: u64,
    pub(super) scope: TokenScope,
    pub(super) purpose: Purpose,
}

/// A token, as the headers that carry it. They do not print.
#[derive(Debug, Clone)]
pub(super) struct Token {
    made_at: Instant,
    /// The version of the App with which it was fetched.
    version: u64,
    /// For the API.
    pub(super) bearer: HeaderValue,
    /// For git.
    pub(super) basic: HeaderValue,
}

impl Token {
    /// Whether GitHub may refuse it although it is right.
    pub(super) fn is_young(&self) -> bool {
        self.made_at.elapsed() < TOKEN_YOUNG
    }
}

#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<HashMap<TokenKey, Token>>);

impl Tokens {
    /// A token that is kept, or a new one.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn get(
        &self,
        api: &Api,
        app: &App,
        tenant: TenantId,
        key: &TokenKey,
    ) -> Result<Token, ForgeError> {
        let kept = lock(&self.0).get(key).cloned();
        if let Some(token) =
            kept.filter(|token| token.version == app.version && token.made_at.elapsed() < TOKEN_KEPT)
        {
            return Ok(token);
        }
        let token = fetch(api, app, tenant, key).await?;
        let mut tokens = lock(&self.0);
        if tokens.len() >= TOKENS_MAX {
            tokens.retain(|_, token| token.made_at.elapsed() < TOKEN_KEPT);
            if tokens.len() >= TOKENS_MAX {
                tokens.clear();
            }
        }
        tokens.insert(key.clone(), token.clone());
        Ok(token)
    }

    /// Forgets a token that GitHub refuses.
    pub(super) fn forget(&self, key: &TokenKey) {
        lock(&self.0).remove(key);
    }
}

async fn fetch(api: &Api, app: &App, tenant: TenantId, key: &TokenKey) -> Result<Token, ForgeError> {
    let proof = app.proof()?;
    let mut body = json!({"permissions": key.purpose.permissions()});
    match &key.scope {
        TokenScope::Id(id) => body["repository_ids"] = json!([id]),
        TokenScope::Name(name) => body["repositories"] = json!([name]),
    }
    let path = format!("/app/installations/{}/access_tokens", key.installation);
    let call = ApiCall {
        base: &app.api,
        tenant,
        method: &Method::POST,
        path: &path,
        authorization: &proof,
        body: Some(&body),
    };
    let answer: TokenAnswer = api.send(call).await?;
    let token = Zeroizing::new(answer.token);
    let unusable = || ForgeError::Failed("its token cannot be sent".to_owned());
    Ok(Token {
        made_at: Instant::now(),
        version: app.version,
        bearer: bearer(&token).ok_or_else(unusable)?,
        basic: basic(TOKEN_USER, &token).ok_or_else(unusable)?,
    })
}
