//! A provider: its address, its protocol, its key and its models.

use crate::model::{Model, Thinking};
use domain::egress::host::is_this_machine;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest wait for the head of a model's answer, unless the provider's settings say otherwise; milliseconds.
const MODEL_HEADER_TIMEOUT_MS: u64 = 60_000;
/// Longest silence in the middle of a model's answer, unless the provider's settings say otherwise; milliseconds.
const MODEL_CHUNK_TIMEOUT_MS: u64 = 120_000;

/// The wire protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Anthropic Messages: `"anthropic"`.
    Anthropic,
    /// OpenAI Chat Completions and compatible servers: `"openai-chat"`.
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    /// OpenAI Responses: `"openai-responses"`.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Google Gemini: `"gemini"`.
    Gemini,
}

impl Protocol {
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini];

    /// The name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAiChat => "openai-chat",
            Self::OpenAiResponses => "openai-responses",
            Self::Gemini => "gemini",
        }
    }

    /// The vendor's own address.
    pub fn default_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenAiChat | Self::OpenAiResponses => "https://api.openai.com/v1",
            Self::Gemini => "https://generativelanguage.googleapis.com",
        }
    }

    /// Whether `base_url` is the vendor's own address, with any path.
    pub(crate) fn is_vendor(self, base_url: &str) -> bool {
        let host = |url: &str| reqwest::Url::parse(url).ok()?.host_str().map(str::to_owned);
        host(base_url).is_some_and(|is| host(self.default_base_url()) == Some(is))
    }

    /// How a model that the catalogue does not list receives its effort.
    pub(crate) fn usual_thinking(self) -> Thinking {
        match self {
            Self::Anthropic => Thinking::Adaptive,
            Self::OpenAiChat | Self::OpenAiResponses | Self::Gemini => Thinking::Effort,
        }
    }
}

/// A provider's key. `Debug` shows `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// Returns the key, only for the header that carries it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// The id in settings and in `provider/model`.
    pub id: String,
    pub protocol: Protocol,
    /// With or without the trailing `/v1`; `http` or `https`.
    pub base_url: String,
    /// Sent as the protocol requires. A local server usually needs none.
    pub api_key: Option<ApiKey>,
    /// Its models, the preferred one first.
    pub models: Vec<Model>,
    /// Longest wait for the head of an answer; milliseconds.
    pub header_timeout_ms: u64,
    /// Longest silence in the middle of an answer; milliseconds.
    pub chunk_timeout_ms: u64,
}

impl Provider {
    /// Creates a provider with the default timeouts and without models.
    pub fn new(id: impl Into<String>, protocol: Protocol, base_url: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            protocol,
            base_url: base_url.into(),
            api_key: None,
            models: Vec::new(),
            header_timeout_ms: MODEL_HEADER_TIMEOUT_MS,
            chunk_timeout_ms: MODEL_CHUNK_TIMEOUT_MS,
        }
    }

    /// Whether this is OpenAI itself. Compatible servers refuse some of its newer fields.
    pub(crate) fn is_openai(&self) -> bool {
        let speaks = matches!(self.protocol, Protocol::OpenAiChat | Protocol::OpenAiResponses);
        speaks && self.protocol.is_vendor(&self.base_url)
    }

    /// Whether its host is `domain` or a subdomain of it.
    pub(crate) fn is_at(&self, domain: &str) -> bool {
        let url = reqwest::Url::parse(&self.base_url).ok();
        let host = url.as_ref().and_then(reqwest::Url::host_str).unwrap_or_default();
        host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// Whether it runs on this machine. Calls to it must bypass the proxy that the environment names.
    pub(crate) fn is_loopback(&self) -> bool {
        let url = reqwest::Url::parse(&self.base_url);
        url.is_ok_and(|url| url.host_str().is_some_and(is_this_machine))
    }
}
