//! The App with its credentials.

use crate::{credential::bearer, forge::error::ForgeError};
use aws_lc_rs::hmac;
use chassis::secret::SecretBytes;
use domain::{egress::git::GitAddress, text::unhex};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::broker::forge::ForgeApp;
use zeroize::Zeroizing;

/// Time for which the proof of the App is valid. GitHub takes at most ten minutes.
const PROOF_VALID: Duration = Duration::from_secs(540);
/// How far the clock of GitHub may be behind.
const CLOCK_SLACK: Duration = Duration::from_secs(60);
/// What stands before the digits of a signature.
const SIGNATURE_PREFIX: &str = "sha256=";

/// An App that is to be stored.
pub(crate) struct NewApp {
    pub(crate) app_id: u64,
    pub(crate) api_url: String,
    pub(crate) web_url: String,
    /// PEM.
    pub(crate) private_key: SecretBytes,
    pub(crate) webhook_secret: SecretBytes,
    pub(crate) actor: String,
}

/// What is sealed.
#[derive(Serialize)]
struct SealedText<'a> {
    private_key: &'a str,
    webhook_secret: &'a str,
    /// That of the App before the last change.
    earlier_webhook_secret: &'a str,
}

/// The same, opened.
#[derive(Deserialize)]
struct OpenedText {
    private_key: String,
    webhook_secret: String,
    #[serde(default)]
    earlier_webhook_secret: String,
}

/// The credentials of the App, ready for use.
pub(super) struct Credentials {
    key: EncodingKey,
    /// The newest first.
    webhook_secrets: Vec<hmac::Key>,
}

/// The App of this deployment.
pub(super) struct App {
    pub(super) facts: ForgeApp,
    pub(super) version: u64,
    pub(super) api: GitAddress,
    pub(super) credentials: Credentials,
}

#[derive(Serialize)]
struct Claims {
    iat: u64,
    exp: u64,
    iss: String,
}

impl NewApp {
    /// What is to be sealed. The secret of the webhook before the change still counts.
    ///
    /// # Errors
    /// `KeyInvalid`.
    pub(super) fn to_sealed(&self, earlier: Option<&SecretBytes>) -> Result<SecretBytes, ForgeError> {
        let text = |bytes: &SecretBytes| Zeroizing::new(String::from_utf8_lossy(bytes.expose()).into_owned());
        let (private_key, webhook_secret) = (text(&self.private_key), text(&self.webhook_secret));
        let before = earlier.and_then(|earlier| serde_json::from_slice::<OpenedText>(earlier.expose()).ok());
        let before = before.map(|before| Zeroizing::new(before.webhook_secret)).unwrap_or_default();
        let stored = SealedText {
            private_key: private_key.trim(),
            webhook_secret: webhook_secret.trim(),
            earlier_webhook_secret: if before.as_str() == webhook_secret.trim() { "" } else { &before },
        };
        let bytes = SecretBytes::of(serde_json::to_vec(&stored).map_err(|_| ForgeError::KeyInvalid)?);
        Credentials::parse(&bytes).map(|_| bytes)
    }
}

impl Credentials {
    /// Reads what was sealed.
    ///
    /// # Errors
    /// `KeyInvalid`.
    pub(super) fn parse(opened: &SecretBytes) -> Result<Self, ForgeError> {
        let stored: OpenedText =
            serde_json::from_slice(opened.expose()).map_err(|_| ForgeError::KeyInvalid)?;
        let OpenedText { private_key, webhook_secret, earlier_webhook_secret } = stored;
        let private_key = Zeroizing::new(private_key);
        let key = EncodingKey::from_rsa_pem(private_key.as_bytes()).map_err(|_| ForgeError::KeyInvalid)?;
        let secrets = [webhook_secret, earlier_webhook_secret].map(Zeroizing::new);
        let secrets = secrets.iter().filter(|secret| !secret.is_empty());
        let webhook_secrets =
            secrets.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())).collect();
        let credentials = Self { key, webhook_secrets };
        credentials.prove(0).map(|_| credentials)
    }

    /// Whether one of the secrets of the webhook has signed a body. Takes the same time for every wrong signature.
    pub(super) fn has_signed(&self, body: &[u8], signature: &str) -> bool {
        let Some(tag) = signature.strip_prefix(SIGNATURE_PREFIX).and_then(unhex) else { return false };
        self.webhook_secrets.iter().any(|key| hmac::verify(key, body, &tag).is_ok())
    }

    /// The proof that the caller is the App.
    ///
    /// # Errors
    /// `KeyInvalid`.
    pub(super) fn prove(&self, app_id: u64) -> Result<Zeroizing<String>, ForgeError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let claims = Claims {
            iat: now.saturating_sub(CLOCK_SLACK).as_secs(),
            exp: (now + PROOF_VALID).as_secs(),
            iss: app_id.to_string(),
        };
        let proof = encode(&Header::new(Algorithm::RS256), &claims, &self.key);
        proof.map(Zeroizing::new).map_err(|_| ForgeError::KeyInvalid)
    }
}

impl App {
    /// The proof as a header.
    ///
    /// # Errors
    /// `KeyInvalid`.
    pub(super) fn proof(&self) -> Result<HeaderValue, ForgeError> {
        bearer(&self.credentials.prove(self.facts.app_id)?).ok_or(ForgeError::KeyInvalid)
    }
}

/// Reads a URL of the forge.
///
/// # Errors
/// `UrlInvalid`.
pub(super) fn parse_url(url: &str) -> Result<GitAddress, ForgeError> {
    GitAddress::parse_url(url).map_err(|_| ForgeError::UrlInvalid(url.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use aws_lc_rs::{
        encoding::{AsDer as _, Pkcs8V1Der},
        rsa::{KeyPair, KeySize},
    };
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    fn app(webhook_secret: &str) -> NewApp {
        let der = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let der: Pkcs8V1Der<'_> = der.as_der().unwrap();
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            STANDARD.encode(der.as_ref())
        );
        NewApp {
            app_id: 7,
            api_url: "https://api.github.com".to_owned(),
            web_url: "https://github.com".to_owned(),
            private_key: SecretBytes::of(pem.into_bytes()),
            webhook_secret: SecretBytes::of(webhook_secret.as_bytes().to_vec()),
            actor: "operator".to_owned(),
        }
    }

    /// The example of GitHub's documentation.
    const SIGNED: (&str, &str, &str) = (
        "It's a Secret to Everybody",
        "Hello, World!",
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    );

    #[test]
    fn the_secret_of_now_and_the_one_before_sign() {
        let (secret, body, signature) = SIGNED;
        let first = app(&format!("{secret}\n")).to_sealed(None).unwrap();
        let credentials = Credentials::parse(&first).unwrap();
        assert!(credentials.has_signed(body.as_bytes(), signature));
        for wrong in
            ["", "sha256=", "sha256=00", &signature[7..], &signature.replace('7', "8"), "sha1=757107ea"]
        {
            assert!(!credentials.has_signed(body.as_bytes(), wrong), "{wrong}");
        }
        assert!(!credentials.has_signed(b"Hello, World?", signature));
        let second = app("another").to_sealed(Some(&first)).unwrap();
        assert!(Credentials::parse(&second).unwrap().has_signed(body.as_bytes(), signature));
        let third = app("a third").to_sealed(Some(&second)).unwrap();
        assert!(!Credentials::parse(&third).unwrap().has_signed(body.as_bytes(), signature));
    }

    #[test]
    fn a_key_that_cannot_sign_is_refused() {
        for key in ["", "hunter2", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            let new = NewApp { private_key: SecretBytes::of(key.as_bytes().to_vec()), ..app("secret") };
            assert!(matches!(new.to_sealed(None), Err(ForgeError::KeyInvalid)), "{key}");
        }
    }

    #[test]
    fn a_url_of_a_forge_has_tls() {
        for url in ["https://api.github.com", "https://ghe.acme.dev/api/v3", "https://ghe.acme.dev:8443"] {
            assert!(parse_url(url).is_ok(), "{url}");
        }
        for url in ["", "api.github.com", "http://api.github.com", "https://u:p@h.dev", "https://h.dev?x"] {
            assert!(parse_url(url).is_err(), "{url}");
        }
    }
}
