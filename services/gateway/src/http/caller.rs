//! Who calls over HTTP, and for which directory. A key comes as Basic password, as Bearer, or, from browsers that can send no
//! header, in the query as `auth_token`: base64 of `user:key`.

use super::error::Refused;
use crate::{
    auth::{Principal, client},
    state::State,
};
use axum::{
    extract::{FromRequestParts, Query},
    http::{HeaderMap, header, request::Parts},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::text::percent_decode;
use serde::Deserialize;

/// Says for which directory a request is, if the query does not.
const DIRECTORY: &str = "x-opencode-directory";

/// Somebody with a valid key.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) principal: Principal,
    /// The key of a project: a directory of the caller's machine, or the project's name. `None`: the default one.
    pub(super) directory: Option<String>,
    /// Whether it is a program of OpenCode's own, by what it calls itself.
    pub(super) is_opencode: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    directory: Option<String>,
    #[serde(rename = "location[directory]")]
    location: Option<String>,
    auth_token: Option<String>,
}

impl Caller {
    /// A call of ours in the caller's name.
    pub(super) fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.extensions_mut().insert(self.principal.clone());
        request
    }
}

impl FromRequestParts<State> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Refused> {
        let asked = Asked::of(parts)?;
        let key = key(&parts.headers, asked.auth_token.as_deref()).ok_or(Refused::Unknown)?;
        let principal = state.principal_of(&key, None, client::of(&parts.extensions)).await?;
        let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let is_opencode = agent.is_some_and(|agent| agent.starts_with("opencode/"));
        Ok(Self { principal, directory: asked.directory(parts), is_opencode })
    }
}

impl Asked {
    fn of(parts: &Parts) -> Result<Self, Refused> {
        let unreadable = |error| Refused::Unreadable("Query", format!("the query cannot be read: {error}"));
        Ok(Query::try_from_uri(&parts.uri).map_err(unreadable)?.0)
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

/// The directory that a request names, whoever sent it.
pub(super) fn directory(parts: &Parts) -> Result<Option<String>, Refused> {
    Ok(Asked::of(parts)?.directory(parts))
}

/// The key that came with a request.
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
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
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
