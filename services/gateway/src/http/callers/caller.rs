//! The caller over HTTP, and its directory. A client sends its key as Basic password, as Bearer, or, if it cannot send headers, in the
//! query as `auth_token`: base64 of `user:key`.

use crate::{
    app::{files::visits, gateway::Gateway},
    auth::{client, keys::Credentials, live_keys::RequestKey, origin, principal::Principal},
    http::{
        input::{query, read::BodyOwner},
        refusal::Refusal,
    },
    memory::taken_room::TakenRoom,
    scope::Scope,
};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chassis::port;
use domain::{ids::SessionId, text::percent_decode};
use futures::future::join;
use serde::Deserialize;
use tokio::sync::OnceCell;

/// Names the directory of a request, if the query does not.
const DIRECTORY: &str = "x-opencode-directory";

/// A client with a valid key.
#[derive(Debug, Clone)]
pub(in crate::http) struct Caller {
    pub(in crate::http) principal: Principal,
    /// The name of a project, usually a directory on the client's machine. `None`: the client names none.
    pub(in crate::http) directory: Option<String>,
    /// Its directory if it names none, once it was looked up.
    pub(super) default_directory: OnceCell<String>,
    /// Whether the user agent is a program of OpenCode.
    pub(in crate::http) is_opencode: bool,
    /// Whether a browser sent the request for a page, such as OpenCode's web app.
    pub(in crate::http) is_page: bool,
    /// The room that the request and its answer take.
    pub(in crate::http) taken: TakenRoom,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallerQuery {
    directory: Option<String>,
    #[serde(rename = "location[directory]")]
    location: Option<String>,
    auth_token: Option<String>,
}

impl FromRequestParts<Gateway> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, gateway: &Gateway) -> Result<Self, Refusal> {
        if let Some(found) = parts.extensions.remove::<Self>() {
            return Ok(found);
        }
        let query = CallerQuery::of(parts)?;
        let key = key(&parts.headers, query.auth_token.as_deref()).ok_or(Refusal::Unauthenticated)?;
        let credentials = Credentials { key: &key, tenant: None, client: client::of(&parts.extensions) };
        let principal = gateway.authenticate(credentials).await?;
        port::vouch(&parts.extensions);
        RequestKey::note(&parts.extensions, principal.key());
        if let Ok(tenant) = principal.tenant(Scope::Read) {
            parts.extensions.insert(BodyOwner(tenant));
        }
        let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let is_opencode = agent.is_some_and(|agent| agent.starts_with("opencode/"));
        let taken = TakenRoom::of(&parts.extensions);
        let is_page = origin::is_of_page(&parts.headers);
        let (directory, default_directory) = (query.directory(parts), OnceCell::new());
        Ok(Self { principal, directory, default_directory, is_opencode, is_page, taken })
    }
}

impl Caller {
    /// Notes that the client works with a session, while it does something else.
    pub(in crate::http) async fn visiting<T>(
        &self,
        gateway: &Gateway,
        session: &SessionId,
        work: impl Future<Output = T>,
    ) -> T {
        join(work, visits::note(gateway, &self.principal, session)).await.0
    }

    /// As [`Caller::visiting`], for a read of messages. A page reads those of sessions that it does not show as well, to show them faster later.
    pub(in crate::http) async fn reading<T>(
        &self,
        gateway: &Gateway,
        session: &SessionId,
        work: impl Future<Output = T>,
    ) -> T {
        if self.is_page { work.await } else { self.visiting(gateway, session, work).await }
    }
}

impl CallerQuery {
    fn of(parts: &Parts) -> Result<Self, Refusal> {
        query::read(&parts.uri)
    }

    fn directory(self, parts: &Parts) -> Option<String> {
        let header = || {
            let value = parts.headers.get(DIRECTORY)?.to_str().ok()?;
            percent_decode(value).and_then(|bytes| String::from_utf8(bytes).ok())
        };
        let directory = self.directory.or(self.location).or_else(header);
        directory.filter(|directory| !directory.is_empty())
    }
}

/// The directory that a request names, before the caller is authenticated.
pub(in crate::http) fn directory(parts: &Parts) -> Result<Option<String>, Refusal> {
    Ok(CallerQuery::of(parts)?.directory(parts))
}

/// The key of a request.
fn key(headers: &HeaderMap, token: Option<&str>) -> Option<String> {
    let of_basic = |text: &str| {
        let decoded = String::from_utf8(STANDARD.decode(text.trim()).ok()?).ok()?;
        decoded.split_once(':').map(|(_, key)| key.to_owned())
    };
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match header.and_then(|value| value.split_once(' ')) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => Some(rest.trim().to_owned()),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("basic") => of_basic(rest),
        Some(_) => None,
        None => of_basic(token?),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_key_comes_in_three_ways() {
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        let basic = STANDARD.encode("anybody:flk_1:2");
        for (headers, token, want) in [
            (with("Bearer flk_1"), None, Some("flk_1")),
            (with("bearer  flk_1 "), None, Some("flk_1")),
            (with(&format!("Basic {basic}")), None, Some("flk_1:2")),
            (HeaderMap::new(), Some(basic.as_str()), Some("flk_1:2")),
            (with("Basic !"), Some(basic.as_str()), None),
            (with("Digest x"), None, None),
            (with("Bearer"), None, None),
            (HeaderMap::new(), Some("AA=="), None),
            (HeaderMap::new(), None, None),
        ] {
            assert_eq!(key(&headers, token).as_deref(), want, "{headers:?}");
        }
    }
}
