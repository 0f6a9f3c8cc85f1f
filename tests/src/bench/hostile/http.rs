//! A client of OpenCode's HTTP API with the key of the hostile tenant.

use super::attack::Round;
use crate::api::Api;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
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
        Self { url: url.to_owned(), key: api.key().to_owned(), client }
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    /// Reads an answer to its end. An error has the code of the gateway, or the status.
    pub(super) async fn round(request: RequestBuilder) -> Round {
        let answer = request.send().await.map_err(|_| "unreachable".to_owned())?;
        let status = answer.status();
        let body = Self::drain(answer).await.ok_or("cut")?;
        if status.is_success() {
            return Ok(());
        }
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        let code =
            ["/data/ref", "/data/code", "/code", "/ref"].iter().find_map(|path| json.pointer(path)?.as_str());
        Err(code.map_or_else(|| status.as_u16().to_string(), ToOwned::to_owned))
    }

    /// The beginning of an answer; the rest is read and dropped.
    async fn drain(mut answer: Response) -> Option<Vec<u8>> {
        let mut begin = vec![];
        while let Some(piece) = answer.chunk().await.ok()? {
            if begin.len() < 4_096 {
                begin.extend_from_slice(&piece);
            }
        }
        Some(begin)
    }
}
