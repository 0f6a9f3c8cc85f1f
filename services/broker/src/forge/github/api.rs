//! One call of the API, over TLS and at an address that was checked.

use super::answers::RefusalAnswer;
use crate::{
    cause::innermost,
    forge::error::ForgeError,
    outside::{
        client::OutsideClient,
        names::{AllowedAddresses, CheckedNames, Names},
    },
};
use domain::{egress::git::GitAddress, ids::TenantId, text::head};
use reqwest::{
    Certificate, ClientBuilder, Method, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HOST, HeaderMap, HeaderValue, LINK, RETRY_AFTER},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Longest wait for the whole answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read. Beyond it: `forge_failed`.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The version of the API.
const API_VERSION: &str = "2022-11-28";
/// The pause if GitHub limits the App and does not say for how long.
const PAUSE: Duration = Duration::from_secs(60);
/// Bytes of what GitHub says in an error.
const REFUSAL_BYTES_MAX: usize = 1_000;

/// The client of the API.
#[derive(Debug)]
pub(super) struct Api {
    names: Arc<Names>,
    http: OutsideClient,
}

/// A call that is to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct ApiCall<'a> {
    /// Where the API begins.
    pub(super) base: &'a GitAddress,
    pub(super) tenant: TenantId,
    pub(super) method: &'a Method,
    /// "/repos/acme/app".
    pub(super) path: &'a str,
    /// It does not print.
    pub(super) authorization: &'a HeaderValue,
    pub(super) body: Option<&'a Value>,
}

impl Api {
    /// A client that trusts these authorities in addition to those of this machine.
    ///
    /// # Errors
    /// The certificates of this system cannot be used.
    pub(super) fn new(names: Arc<Names>, authorities: &[Certificate]) -> Result<Self, reqwest::Error> {
        let build = || {
            let builder = chassis::http::builder().https_only(true);
            builder.tls_certs_merge(authorities.iter().cloned())
        };
        let check = |builder: ClientBuilder| {
            builder.dns_resolver(Arc::new(CheckedNames::new(Arc::clone(&names), AllowedAddresses::Opened)))
        };
        let http = OutsideClient::new(names.upstream(), build, check)?;
        Ok(Self { names, http })
    }

    /// Sends a call, and reads its answer.
    ///
    /// # Errors
    /// `Unreachable`, `Failed`, `Unauthorized`, `Busy`, `NotFound`, `Refused`.
    ///
    /// Dropped midway: the call was done or not.
    pub(super) async fn send<T: DeserializeOwned>(&self, call: ApiCall<'_>) -> Result<T, ForgeError> {
        Ok(self.send_for_page(call).await?.0)
    }

    /// The same for a list, with the cursor of its next page.
    ///
    /// # Errors
    /// Those of [`Api::send`].
    pub(super) async fn send_for_page<T: DeserializeOwned>(
        &self,
        call: ApiCall<'_>,
    ) -> Result<(T, Option<String>), ForgeError> {
        let sent = tokio::time::timeout(ANSWER_TIME, self.exchange(call)).await;
        let late = |_| ForgeError::Unreachable("it does not answer in time".to_owned());
        let (status, headers, body) = sent.map_err(late)??;
        if !status.is_success() {
            return Err(refusal(status, &headers, &body));
        }
        // An answer without a text is that of a call whose answer nobody reads.
        let body = if body.is_empty() { b"null".as_slice() } else { &body };
        let answer = serde_json::from_slice(body)
            .map_err(|error| ForgeError::Failed(format!("its answer cannot be read: {error}")))?;
        Ok((answer, next_cursor(&headers)))
    }

    async fn exchange(&self, call: ApiCall<'_>) -> Result<(StatusCode, HeaderMap, Vec<u8>), ForgeError> {
        let ApiCall { base, tenant, method, path, authorization, body } = call;
        // The client goes this way alone.
        let route = self.names.find(tenant, base.host(), base.port()).await?;
        let mut request = self
            .http
            .by(route.upstream())
            .request(method.clone(), self.url(base, path)?)
            .header(HOST, base.authority())
            .header(ACCEPT, "application/vnd.github+json")
            .header("x-github-api-version", API_VERSION)
            .header(AUTHORIZATION, authorization.clone());
        if let Some(body) = body {
            request = request.json(body);
        }
        let sent = request.send().await;
        let response = sent.map_err(|error| ForgeError::Unreachable(innermost(&error)))?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok((status, headers, read(response).await?))
    }

    /// The URL as it was checked. The address that the operator gives to a host has a port of its own, which counts only without one in the URL.
    fn url(&self, base: &GitAddress, path: &str) -> Result<Url, ForgeError> {
        let host = base.host();
        let authority = if self.names.is_fixed(host) { host.to_string() } else { base.authority() };
        let text = format!("https://{authority}{}{path}", base.path());
        Url::parse(&text).map_err(|_| ForgeError::UrlInvalid(text))
    }
}

/// Reads an answer.
async fn read(mut response: Response) -> Result<Vec<u8>, ForgeError> {
    let mut body = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| ForgeError::Unreachable(innermost(&error)))?;
        let Some(chunk) = chunk else { return Ok(body) };
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(ForgeError::Failed("its answer is too long".to_owned()));
        }
        body.extend_from_slice(&chunk);
    }
}

/// The cursor in the header about further pages: `<https://api.github.com/…?cursor=v1_7>; rel="next"`.
fn next_cursor(headers: &HeaderMap) -> Option<String> {
    let links = headers.get(LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    let url = next.split_once('<')?.1.split_once('>')?.0;
    let url = Url::parse(url).ok()?;
    url.query_pairs().find(|(name, _)| name == "cursor").map(|(_, cursor)| cursor.into_owned())
}

/// What an answer without success means.
fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ForgeError {
    let said: RefusalAnswer = serde_json::from_slice(body).unwrap_or_default();
    let errors = if said.errors.is_null() { String::new() } else { format!(" {}", said.errors) };
    let text = format!("{} {}{errors}", status.as_u16(), said.message);
    let text = head(&text, REFUSAL_BYTES_MAX).to_owned();
    let limits = matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
    if limits && let Some(pause) = pause(status, headers, &said.message) {
        return ForgeError::Busy(pause);
    }
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ForgeError::Unauthorized(text),
        StatusCode::NOT_FOUND | StatusCode::GONE => ForgeError::NotFound,
        status if status.is_client_error() => ForgeError::Refused(text),
        _ => ForgeError::Failed(text),
    }
}

/// For how long GitHub limits the App; `None`: it does not.
fn pause(status: StatusCode, headers: &HeaderMap, message: &str) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    if let Some(seconds) = number(RETRY_AFTER.as_str()) {
        return Some(Duration::from_secs(seconds.max(1)));
    }
    if number("x-ratelimit-remaining") == Some(0) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let reset = number("x-ratelimit-reset").map(Duration::from_secs);
        return Some(reset.map_or(PAUSE, |reset| reset.saturating_sub(now)).max(Duration::from_secs(1)));
    }
    let message = message.to_ascii_lowercase();
    let is_limit = status == StatusCode::TOO_MANY_REQUESTS
        || message.contains("rate limit")
        || message.contains("submitted too quickly");
    is_limit.then_some(PAUSE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn refused(status: u16, headers: &[(&str, &str)], message: &str) -> ForgeError {
        let headers = headers.iter().map(|(name, value)| {
            (
                reqwest::header::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            )
        });
        let body = serde_json::json!({"message": message}).to_string();
        refusal(StatusCode::from_u16(status).unwrap(), &headers.collect(), body.as_bytes())
    }

    #[test]
    fn the_next_page_has_a_cursor() {
        let url = "https://api.github.com/app/hook/deliveries?per_page=100&cursor=";
        for (link, want) in [
            (format!("<{url}v1_7>; rel=\"next\""), Some("v1_7")),
            (format!("<{url}v1_1>; rel=\"prev\", <{url}v1%5F7>; rel=\"next\""), Some("v1_7")),
            (format!("<{url}v1_1>; rel=\"prev\""), None),
            ("<no URL>; rel=\"next\"".to_owned(), None),
            (String::new(), None),
        ] {
            let headers = HeaderMap::from_iter([(LINK, HeaderValue::from_str(&link).unwrap())]);
            assert_eq!(next_cursor(&headers).as_deref(), want, "{link}");
        }
        assert_eq!(next_cursor(&HeaderMap::new()), None);
    }

    #[test]
    fn an_answer_without_success_has_a_meaning() {
        for (status, headers, message, want) in [
            (401, &[][..], "Bad credentials", "forge_unauthorized"),
            (403, &[], "Resource not accessible by integration", "forge_unauthorized"),
            (403, &[("retry-after", "7")], "You have exceeded a secondary rate limit", "forge_busy"),
            (403, &[], "You have exceeded a secondary rate limit", "forge_busy"),
            (
                403,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1")],
                "API rate limit exceeded",
                "forge_busy",
            ),
            (429, &[], "", "forge_busy"),
            (404, &[], "Not Found", "forge_not_found"),
            (410, &[], "Gone", "forge_not_found"),
            (409, &[], "Conflict", "forge_refused"),
            (422, &[], "Validation Failed", "forge_refused"),
            (500, &[], "", "forge_failed"),
            (302, &[], "", "forge_failed"),
        ] {
            let error = refused(status, headers, message);
            assert_eq!(error.code().as_str(), want, "{status} {message}: {error}");
        }
        let ForgeError::Busy(pause) = refused(403, &[("retry-after", "7")], "") else { panic!("a limit") };
        assert_eq!(pause.as_secs(), 7);
        assert!(matches!(
            refusal(StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>"),
            ForgeError::Failed(_)
        ));
    }
}
