//! The App of the double.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rcgen::{KeyPair, PKCS_RSA_SHA256, SigningKey as _};
use serde_json::{Value, json};
use std::{
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

/// One for each process, because a key takes a tenth of a second.
static KEY: OnceLock<String> = OnceLock::new();

/// Seconds that its own tokens live, and that they pretend to be old, as GitHub advises.
const LIFETIME_SECONDS: u64 = 300;
const AGE_SECONDS: u64 = 60;

/// An App that listens to issues, pull requests, reviews, checks and pushes, and may write all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    pub id: u64,
    pub slug: &'static str,
    /// RSA, as PEM of PKCS#8.
    pub key: String,
    pub webhook_secret: &'static str,
    /// Its installation in the organization `acme`.
    pub installation: u64,
}

impl App {
    pub(super) fn new() -> Self {
        let made =
            || KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key for signatures by RSA").serialize_pem();
        let key = KEY.get_or_init(made).clone();
        Self {
            id: 700_001,
            slug: "flotilla",
            key,
            webhook_secret: "It's a Secret to Everybody",
            installation: 900_001,
        }
    }

    /// A JSON web token with which the App speaks for itself.
    pub fn jwt(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
        let claims =
            json!({"iat": now - AGE_SECONDS, "exp": now + LIFETIME_SECONDS, "iss": self.id.to_string()});
        self.sign(&claims)
    }

    /// A JSON web token with these claims: `iat`, `exp`, `iss`.
    pub fn sign(&self, claims: &Value) -> String {
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(&self.key, &PKCS_RSA_SHA256).expect("its key");
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "RS256", "typ": "JWT"})), part(claims));
        let signature = key.sign(signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// How the state knows it.
    pub(super) fn settings(&self) -> Value {
        json!({
            "id": self.id,
            "slug": self.slug,
            "name": "Flotilla",
            "key": self.key,
            "webhookSecret": self.webhook_secret,
            "permissions": {
                "metadata": "read", "contents": "write", "pull_requests": "write", "issues": "write",
                "checks": "write", "actions": "read",
            },
            "events": [
                "issues", "issue_comment", "pull_request", "pull_request_review",
                "pull_request_review_comment", "push", "create", "delete", "check_run", "check_suite",
                "workflow_run",
            ],
        })
    }
}
