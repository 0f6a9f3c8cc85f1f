//! How a registry is convinced: it says which kind of authorization it takes, and perhaps where its token service is.

use super::{
    credential::{Credential, NamedCredential},
    http::{self, BodyBound, Http, HttpRequest, host_of},
};
use crate::{credential, images::error::ImageError};
use http_auth::parse_challenges;
use reqwest::{
    StatusCode, Url,
    header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE},
};
use serde::Deserialize;
use zeroize::Zeroizing;

/// Bytes of the answer of a token service. Beyond it: `image_too_large`.
const TOKEN_BYTES_MAX: usize = 256 * 1024;
/// How this client calls itself to token services.
const CLIENT: &str = "flotilla";

/// What is to be opened, and with what.
pub(super) struct AuthorizationRequest<'a> {
    pub(super) registry: &'a str,
    pub(super) repository: &'a str,
    pub(super) credential: Option<&'a NamedCredential>,
}

enum Challenge {
    Basic,
    /// A token of this service.
    Bearer {
        realm: Url,
        service: Option<String>,
    },
}

/// The answer of a token service: one of two names for the same.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl AuthorizationRequest<'_> {
    /// The value of the header that opens the repository, after an answer with these headers refused it.
    ///
    /// # Errors
    /// `CredentialMissing`, `CredentialRefused`, and those of requests.
    pub(super) async fn authorize(
        &self,
        http: &Http,
        refusal: &HeaderMap,
    ) -> Result<HeaderValue, ImageError> {
        let credential = self.credential.map(|named| &named.credential);
        match (challenge(refusal), credential) {
            (Some(Challenge::Bearer { .. } | Challenge::Basic), Some(Credential::Bearer(_))) | (None, _) => {
                Err(self.refused(self.registry))
            }
            (Some(Challenge::Bearer { realm, service }), _) => self.token(http, realm, service).await,
            (Some(Challenge::Basic), Some(Credential::Password { user, password })) => {
                credential::basic(user, password).ok_or_else(|| self.refused(self.registry))
            }
            (Some(Challenge::Basic), Some(Credential::Identity(_)) | None) => {
                Err(self.refused(self.registry))
            }
        }
    }

    /// The error of a host that is not convinced.
    pub(super) fn refused(&self, host: &str) -> ImageError {
        let (registry, subject) = (host.to_owned(), self.repository.to_owned());
        match self.credential {
            None => ImageError::CredentialMissing { registry, subject },
            Some(named) => ImageError::CredentialRefused { registry, name: named.name.clone(), subject },
        }
    }

    async fn token(
        &self,
        http: &Http,
        realm: Url,
        service: Option<String>,
    ) -> Result<HeaderValue, ImageError> {
        let host = host_of(&realm);
        let response = http.send(&self.token_request(http, realm, service)?).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(self.refused(&host));
            }
            status => {
                let reason = format!("its token service answered {}", status.as_u16());
                return Err(ImageError::Failed { host, reason });
            }
        }
        let bound = BodyBound { bytes: TOKEN_BYTES_MAX, subject: "the answer of the token service" };
        let body = Zeroizing::new(http::read(response, bound).await?);
        let answer: Option<TokenAnswer> = serde_json::from_slice(&body).ok();
        let token = answer.and_then(|answer| answer.token.or(answer.access_token)).map(Zeroizing::new);
        let header = token.and_then(|token| credential::bearer(&token));
        let reason = || "its token service sent no token".to_owned();
        header.ok_or_else(|| ImageError::Failed { host, reason: reason() })
    }

    /// The scope is what this pull needs, whatever the registry asks for.
    fn token_request(
        &self,
        http: &Http,
        mut realm: Url,
        service: Option<String>,
    ) -> Result<HttpRequest, ImageError> {
        let scope = format!("repository:{}:pull", self.repository);
        let timeout = Some(http.patience.document);
        if let Some(Credential::Identity(token)) = self.credential.map(|named| &named.credential) {
            let mut form = realm.clone();
            form.set_query(None);
            form.query_pairs_mut()
                .append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", token)
                .append_pair("client_id", CLIENT)
                .append_pair("scope", &scope)
                .extend_pairs(service.map(|service| ("service", service)));
            let form = Zeroizing::new(form.query().unwrap_or_default().to_owned());
            return Ok(HttpRequest { form: Some(form), timeout, ..HttpRequest::get(realm) });
        }
        realm
            .query_pairs_mut()
            .append_pair("scope", &scope)
            .extend_pairs(service.map(|service| ("service", service)));
        let mut request = HttpRequest { timeout, ..HttpRequest::get(realm) };
        if let Some(Credential::Password { user, password }) = self.credential.map(|named| &named.credential)
        {
            let header = credential::basic(user, password).ok_or_else(|| self.refused(self.registry))?;
            request.authorize(Some(&header));
        }
        Ok(request)
    }
}

/// What the registry takes; a token rather than a password. `None`: nothing that we have.
fn challenge(refusal: &HeaderMap) -> Option<Challenge> {
    let values = refusal.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let challenges: Vec<_> = values.filter_map(|value| parse_challenges(value).ok()).flatten().collect();
    let find = |scheme: &str| challenges.iter().find(|found| found.scheme.eq_ignore_ascii_case(scheme));
    let Some(bearer) = find("bearer") else { return find("basic").map(|_| Challenge::Basic) };
    let parameter = |name: &str| {
        let found = bearer.params.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_unescaped())
    };
    let realm = Url::parse(&parameter("realm")?).ok()?;
    Some(Challenge::Bearer { realm, service: parameter("service") })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn show(values: &[&str]) -> Option<String> {
        let values = values.iter().map(|value| (WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap()));
        challenge(&values.collect()).map(|challenge| match challenge {
            Challenge::Basic => "basic".to_owned(),
            Challenge::Bearer { realm, service } => format!("{realm} {service:?}"),
        })
    }

    #[test]
    fn challenges_are_read_in_any_order_and_case() {
        let bearer = r#"Bearer realm="https://auth.io/token",service="reg, \"x\"",scope="a""#;
        let want = Some(r#"https://auth.io/token Some("reg, \"x\"")"#.to_owned());
        assert_eq!(show(&[bearer]), want);
        assert_eq!(show(&["Basic realm=\"x\"", bearer]), want);
        assert_eq!(show(&[&format!("basic realm=\"x\", {bearer}")]), want);
        assert_eq!(show(&["BASIC realm=\"x\""]).as_deref(), Some("basic"));
        assert_eq!(show(&["bearer realm=\"https://a/\""]).as_deref(), Some("https://a/ None"));
        for nothing in
            [&[][..], &["Bearer"], &["Bearer realm=\"nonsense\""], &["Digest realm=\"x\""], &["\"\""]]
        {
            assert_eq!(show(nothing), None, "{nothing:?}");
        }
    }
}
