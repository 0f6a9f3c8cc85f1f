//! A client of OpenCode's HTTP API with the key of the hostile tenant.

use super::round::Round;
use crate::api::Api;
use reqwest::{Method, RequestBuilder, Response};
use std::time::Duration;

/// Longest wait for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// The client. Clones share its connections.
#[derive(Debug, Clone)]
pub(super) struct Http {
    pub(super) url: String,
    key: String,
    client: reqwest::Client,
}

impl Http {
    pub(super) fn new(url: &str, api: &Api) -> Self {
        let client = reqwest::Client::builder().timeout(ANSWER_WAIT).build().expect("a client");
        Self { url: url.to_owned(), key: api.key.clone(), client }
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    /// Reads an answer to its end. An error has the code of the gateway, or the status.
    pub(super) async fn round(request: RequestBuilder) -> Round {
        let answer = request.send().await.map_err(|_| "unreachable".to_owned())?;
        let status = answer.status();
        let code = answer.headers().get("x-flotilla-code").and_then(|code| code.to_str().ok());
        let code = code.map_or_else(|| status.as_u16().to_string(), ToOwned::to_owned);
        Self::drain(answer).await.ok_or("cut")?;
        if status.is_success() { Ok(()) } else { Err(code) }
    }

    /// Reads an answer and drops it; `None` if it was cut.
    async fn drain(mut answer: Response) -> Option<()> {
        while answer.chunk().await.ok()?.is_some() {}
        Some(())
    }
}
