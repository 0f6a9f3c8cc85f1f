//! A key in the transit engine of HashiCorp Vault or OpenBao, which never leaves it.
//!
//! No opened key of a value is kept: a token that the operator revokes opens nothing from then on, and the audit of the key service has every use. A call
//! takes milliseconds, which is little compared with the request to a registry or a server of git for which the secret is opened.

use super::{
    error::{EnvelopeError, KmsReason},
    key_file::{KEY_BYTES, read_private},
    place::SecretPlace,
};
use crate::{
    body::{self, BodyError},
    cause::innermost,
    credential::{sensitive, text},
};
use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use chassis::secret::SecretBytes;
use domain::egress::host::is_this_machine;
use reqwest::{
    Body, Certificate, Client, Response, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderValue},
};
use rpc::v1::ErrorCode;
use serde::{Deserialize, Serialize};
use shares::Shares;
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::timeout;
use zeroize::Zeroizing;

/// Calls of the key service at once; a tenant three quarters of them. Further calls wait. Beyond it: `kms_unavailable`.
const KMS_CALLS_MAX: u32 = 16;
/// Times that one call is sent. Beyond it: `kms_unavailable`.
const KMS_TRIES_MAX: u32 = 3;
/// Time for one try; milliseconds. Beyond it the next one begins.
const KMS_TRY_MS_MAX: u64 = 3_000;
/// Time for a call, with its wait and all tries; milliseconds. People and sessions wait for it. Beyond it: `kms_unavailable`.
const KMS_CALL_MS_MAX: u64 = 8_000;
/// Bytes of an answer of the key service. Beyond it: `kms_unavailable`.
const KMS_ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the file with the token. Beyond it: `kms_unavailable`.
const KMS_TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the sealed key of a value. Beyond it: `kms_unavailable`.
const SEALED_KEY_BYTES_MAX: usize = 1024;
/// Bytes of the name of the key. The broker does not start with a longer one.
const KMS_KEY_NAME_BYTES_MAX: usize = 100;
/// Pause before the next try.
const PAUSE: Duration = Duration::from_millis(200);
/// What every sealed key begins with.
const SEALED_PREFIX: &str = "vault:";
/// What a refusal to decrypt says if the fault is in the sealed key. Any other one is a matter of the operator.
const DAMAGES: [&str; 2] = ["message authentication failed", "invalid ciphertext"];

/// Where the key is, and what opens it.
#[derive(Debug)]
pub struct TransitSettings<'a> {
    /// The address of the service: `https://vault.acme.dev:8200`.
    pub url: &'a str,
    /// The name of the key.
    pub key: &'a str,
    /// The file with the token. Each call reads it, because an agent renews it.
    pub token_file: &'a Path,
    /// Authorities that the broker trusts in addition to those of this machine.
    pub authorities: Vec<Certificate>,
}

#[derive(Debug)]
pub struct TransitKey {
    id: String,
    encrypt: Url,
    decrypt: Url,
    token_file: PathBuf,
    http: Client,
    calls: Shares<Box<str>>,
}

/// What the engine gets. The engine authenticates the context and does not encrypt it.
#[derive(Serialize)]
struct TransitRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    plaintext: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ciphertext: Option<&'a str>,
    associated_data: String,
}

#[derive(Deserialize)]
struct TransitAnswer {
    data: TransitData,
}

#[derive(Deserialize)]
struct TransitData {
    ciphertext: Option<String>,
    plaintext: Option<String>,
}

/// An answer to a call that was let in.
enum Verdict {
    Data(TransitData),
    /// The engine does not do it, with its reason.
    Refusal(String),
}

impl TransitKey {
    /// # Errors
    /// The address, the name or the certificates are wrong.
    pub fn new(settings: TransitSettings<'_>) -> anyhow::Result<Self> {
        let TransitSettings { url, key, token_file, authorities } = settings;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        ensure!(
            (1..=KMS_KEY_NAME_BYTES_MAX).contains(&key.len())
                && key.bytes().all(is_plain)
                && !key.starts_with('.'),
            "the name of the key has 1 to {KMS_KEY_NAME_BYTES_MAX} letters, digits, hyphens, underscores and dots"
        );
        let base = Url::parse(url).context("read the address of the key service")?;
        let has_login = !base.username().is_empty() || base.password().is_some();
        let is_bare = base.query().is_none() && base.fragment().is_none() && !has_login;
        ensure!(is_bare, "the address of the key service has more than a host, a port and a path");
        ensure!(
            base.scheme() == "https"
                || base.scheme() == "http" && base.host_str().is_some_and(is_this_machine),
            "the address of the key service is neither https nor http on this machine"
        );
        let path = |operation: &str| {
            let url = format!("{}/v1/transit/{operation}/{key}", url.trim_end_matches('/'));
            Url::parse(&url).context("read the address of the key service")
        };
        let http = chassis::http::builder()
            .no_proxy()
            .https_only(base.scheme() == "https")
            .timeout(Duration::from_millis(KMS_TRY_MS_MAX))
            .tls_certs_merge(authorities);
        Ok(Self {
            id: format!("transit:{key}"),
            encrypt: path("encrypt")?,
            decrypt: path("decrypt")?,
            token_file: token_file.to_owned(),
            http: http.build().context("prepare the client of the key service")?,
            calls: Shares::three_quarters(KMS_CALLS_MAX),
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Encrypts the key of a value.
    pub(super) async fn wrap(
        &self,
        key: &[u8; KEY_BYTES],
        place: &SecretPlace<'_>,
    ) -> Result<Vec<u8>, EnvelopeError> {
        let plaintext = Zeroizing::new(STANDARD.encode(key));
        let request = TransitRequest {
            plaintext: Some(&plaintext),
            ciphertext: None,
            associated_data: STANDARD.encode(place.context()),
        };
        let data = match self.call(&self.encrypt, place.tenant, &request).await? {
            Verdict::Data(data) => data,
            Verdict::Refusal(_) => return Err(refused("it does not encrypt with this key (400)")),
        };
        let sealed = data
            .ciphertext
            .filter(|text| text.starts_with(SEALED_PREFIX) && text.len() <= SEALED_KEY_BYTES_MAX);
        sealed.map(String::into_bytes).ok_or_else(|| unavailable("its answer has no ciphertext"))
    }

    /// Decrypts the key of a value.
    pub(super) async fn unwrap(
        &self,
        sealed: &[u8],
        place: &SecretPlace<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, EnvelopeError> {
        let sealed = std::str::from_utf8(sealed).ok().filter(|text| text.starts_with(SEALED_PREFIX));
        let request = TransitRequest {
            plaintext: None,
            ciphertext: Some(sealed.ok_or(EnvelopeError::Damaged)?),
            associated_data: STANDARD.encode(place.context()),
        };
        let data = match self.call(&self.decrypt, place.tenant, &request).await? {
            Verdict::Data(data) => data,
            Verdict::Refusal(reason) if DAMAGES.iter().any(|damage| reason.contains(damage)) => {
                return Err(EnvelopeError::Damaged);
            }
            Verdict::Refusal(_) => {
                let reason = "it has no key, or no version of it, that may decrypt the secret (400)";
                return Err(EnvelopeError::KmsSecretRefused(KmsReason(reason.to_owned())));
            }
        };
        let key = data.plaintext.map(Zeroizing::new).and_then(|text| STANDARD.decode(text.as_bytes()).ok());
        key.map(Zeroizing::new).ok_or_else(|| unavailable("its answer has no plaintext"))
    }

    /// Sends a request in the name of a tenant until the service answers, and counts it.
    async fn call(
        &self,
        url: &Url,
        tenant: &str,
        request: &TransitRequest<'_>,
    ) -> Result<Verdict, EnvelopeError> {
        // With room for all of it, the bytes do not move, so this buffer leaves no copy.
        let mut body = Zeroizing::new(Vec::<u8>::with_capacity(2 * SEALED_KEY_BYTES_MAX));
        serde_json::to_writer(&mut *body, request).map_err(|_| EnvelopeError::Crypto)?;
        let (body, time) = (Bytes::from_owner(body), Duration::from_millis(KMS_CALL_MS_MAX));
        let work = async {
            let permit = self.calls.acquire(tenant.into(), time).await;
            let _permit = permit.map_err(|_| unavailable("too many calls wait for it"))?;
            let mut tries = 1;
            loop {
                match self.try_once(url, &body).await {
                    Err(EnvelopeError::KmsUnavailable(_)) if tries < KMS_TRIES_MAX => {}
                    ended => return ended,
                }
                tokio::time::sleep(PAUSE).await;
                tries += 1;
            }
        };
        let ended =
            timeout(time, work).await.unwrap_or_else(|_| Err(unavailable("it does not answer in time")));
        let code = match &ended {
            Ok(Verdict::Data(_)) => "ok",
            Ok(Verdict::Refusal(_)) => ErrorCode::KmsRefused.as_str(),
            Err(error) => error.code().as_str(),
        };
        metrics::counter!("flotilla_broker_kms_calls_total", "code" => code).increment(1);
        ended
    }

    async fn try_once(&self, url: &Url, body: &Bytes) -> Result<Verdict, EnvelopeError> {
        let token = self.token().await?;
        let request = self.http.post(url.clone()).header("X-Vault-Token", token);
        let request = request.header(CONTENT_TYPE, "application/json").body(Body::from(body.clone()));
        let response = request.send().await.map_err(|error| broken(&error))?;
        match response.status() {
            StatusCode::OK => {
                let answer = serde_json::from_slice::<TransitAnswer>(&read(response).await?);
                let answer = answer.map_err(|_| unavailable("its answer is not that of a transit engine"))?;
                Ok(Verdict::Data(answer.data))
            }
            StatusCode::BAD_REQUEST => {
                Ok(Verdict::Refusal(String::from_utf8_lossy(&read(response).await?).into_owned()))
            }
            StatusCode::FORBIDDEN => Err(refused("it does not take the token for this key (403)")),
            StatusCode::NOT_FOUND => Err(refused("it has no transit engine at this address (404)")),
            status => Err(unavailable(&format!("it answered {}", status.as_u16()))),
        }
    }

    /// Reads the token. An agent that renews it may be in the middle of that.
    async fn token(&self) -> Result<HeaderValue, EnvelopeError> {
        let failed = |error: io::Error| unavailable(&format!("cannot read the file with its token: {error}"));
        let file = self.token_file.clone();
        let read = tokio::task::spawn_blocking(move || read_private(&file, KMS_TOKEN_BYTES_MAX as u64)).await;
        let read = read.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)?;
        let Some(bytes) = read else {
            return Err(refused("other users may read the file with its token; run chmod 600, and renew it"));
        };
        let count = bytes.len();
        let bytes = SecretBytes::new(bytes);
        let token = text(&bytes).filter(|token| !token.is_empty() && count <= KMS_TOKEN_BYTES_MAX);
        token.and_then(sensitive).ok_or_else(|| unavailable("the file with its token contains none"))
    }
}

/// Reads an answer up to its bound.
async fn read(response: Response) -> Result<Zeroizing<Vec<u8>>, EnvelopeError> {
    let mut body = Zeroizing::new(Vec::<u8>::with_capacity(KMS_ANSWER_BYTES_MAX));
    match body::read(response, KMS_ANSWER_BYTES_MAX, &mut body).await {
        Ok(()) => Ok(body),
        Err(BodyError::TooLong) => Err(unavailable("its answer is too long")),
        Err(BodyError::Broken(error)) => Err(broken(&error)),
    }
}

fn broken(error: &reqwest::Error) -> EnvelopeError {
    if error.is_timeout() {
        unavailable("it does not answer in time")
    } else {
        unavailable(&innermost(error))
    }
}

fn unavailable(reason: &str) -> EnvelopeError {
    EnvelopeError::KmsUnavailable(KmsReason(reason.to_owned()))
}

fn refused(reason: &str) -> EnvelopeError {
    EnvelopeError::KmsRefused(KmsReason(reason.to_owned()))
}
