//! Providers and their models: what a call is sent to, and how they are read from `flotilla.toml` or the environment.

mod environment;
mod file;

use crate::request::Effort;
use domain::limits::{
    MODEL_CHUNK_TIMEOUT_MS, MODEL_CONTEXT_TOKENS_DEFAULT, MODEL_HEADER_TIMEOUT_MS,
    MODEL_OUTPUT_TOKENS_DEFAULT, PROVIDER_MODELS_MAX, PROVIDERS_MAX,
};
use domain::{message::ModelRef, model::Facts, money::Price};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The language that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Anthropic Messages: `"anthropic"`.
    Anthropic,
    /// OpenAI Chat Completions and everything compatible: `"openai-chat"`.
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    /// OpenAI Responses: `"openai-responses"`.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Google Gemini: `"gemini"`.
    Gemini,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini];

    /// The word in settings.
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

    /// Whether `base_url` leads to the vendor itself, with whatever path.
    pub(crate) fn is_vendor(self, base_url: &str) -> bool {
        let host = |url: &str| reqwest::Url::parse(url).ok()?.host_str().map(str::to_owned);
        host(base_url).is_some_and(|is| host(self.default_base_url()) == Some(is))
    }

    /// How a model without facts of its own is told how hard to think.
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
    /// Wraps a key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key itself: only for the header it goes into.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where models are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Name in settings and in `provider/model`.
    pub id: String,
    /// Its language.
    pub protocol: Protocol,
    /// With or without the trailing `/v1`; `http` or `https`.
    pub base_url: String,
    /// Sent as the protocol wants; servers on one's own machine need none.
    pub api_key: Option<ApiKey>,
    /// What it serves, the preferred one first.
    pub models: Vec<Model>,
    /// Longest wait for the head of an answer; milliseconds.
    pub header_timeout_ms: u64,
    /// Longest silence inside an answer; milliseconds.
    pub chunk_timeout_ms: u64,
}

impl Provider {
    /// A provider with the default timeouts and without models.
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

    /// Whether this is OpenAI itself: compatible servers refuse some of its newer fields.
    pub(crate) fn is_openai(&self) -> bool {
        let speaks = matches!(self.protocol, Protocol::OpenAiChat | Protocol::OpenAiResponses);
        speaks && self.protocol.is_vendor(&self.base_url)
    }

    /// Whether its host is `domain` or below it.
    pub(crate) fn is_at(&self, domain: &str) -> bool {
        let url = reqwest::Url::parse(&self.base_url).ok();
        let host = url.as_ref().and_then(reqwest::Url::host_str).unwrap_or_default();
        host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// Whether it runs on this machine: no proxy of the environment may come in between.
    pub(crate) fn is_loopback(&self) -> bool {
        let url = reqwest::Url::parse(&self.base_url).ok();
        let host = url.as_ref().and_then(reqwest::Url::host_str).unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

/// How a model is told how hard to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thinking {
    /// Not at all: it thinks as it likes, or does not think.
    #[default]
    Fixed,
    /// By a word. OpenAI: `reasoning_effort` or `reasoning.effort`; Gemini 3: `thinkingLevel`.
    Effort,
    /// Anthropic, newer models: `thinking: adaptive` with `output_config.effort`.
    Adaptive,
    /// By a number of tokens. Anthropic's older models: `thinking.budget_tokens`; Gemini 2.5: `thinkingBudget`.
    Budget,
}

/// What a provider serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The provider's name of it.
    pub id: String,
    /// For people.
    pub name: String,
    /// Prompt and answer together; tokens.
    pub context_tokens: u64,
    /// Longest prompt where it is smaller than the context; tokens.
    pub input_tokens: Option<u64>,
    /// Longest answer; tokens.
    pub output_tokens: u64,
    /// What it costs.
    pub price: Price,
    /// Whether it reasons.
    pub reasoning: bool,
    /// How it is told how hard to think.
    pub thinking: Thinking,
    /// Which efforts it offers; none if it cannot be told.
    pub efforts: Vec<Effort>,
    /// Whether it accepts a temperature.
    pub temperature: bool,
    /// Whether it understands pictures.
    pub images: bool,
    /// Whether it understands PDF documents.
    pub pdf: bool,
    /// Whether it is its provider's model for titles and summaries.
    pub small: bool,
    /// Message field in which a compatible server wants the reasoning back, for example `reasoning_content`.
    pub reasoning_field: Option<String>,
}

impl Model {
    /// The catalogue's facts about `id`, or the defaults for a model that nobody described.
    pub fn known_or_default(id: &str) -> Self {
        crate::catalogue::find(id).unwrap_or_else(|| Self {
            id: id.to_owned(),
            name: id.to_owned(),
            context_tokens: MODEL_CONTEXT_TOKENS_DEFAULT,
            input_tokens: None,
            output_tokens: MODEL_OUTPUT_TOKENS_DEFAULT,
            price: Price::default(),
            reasoning: false,
            thinking: Thinking::Fixed,
            efforts: Vec::new(),
            temperature: true,
            images: false,
            pdf: false,
            small: false,
            reasoning_field: None,
        })
    }

    /// The effort that it is told when `wanted` is: the nearest one that it offers, the lower one first. Thinking and
    /// not thinking never stand for each other where there is a choice.
    pub fn effort(&self, wanted: Option<Effort>) -> Option<Effort> {
        let wanted = wanted?;
        if self.efforts.contains(&wanted) {
            return Some(wanted);
        }
        let thinking = || self.efforts.iter().copied().filter(|effort| *effort != Effort::Off);
        thinking().filter(|effort| *effort < wanted).max().or_else(|| thinking().min())
    }
}

/// All providers of a deployment, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Providers(Vec<Provider>);

impl Providers {
    /// Checks ids, addresses and numbers.
    ///
    /// # Errors
    /// Every problem at once, under the paths `provider[n]…`.
    pub fn new(providers: Vec<Provider>) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        if providers.len() > PROVIDERS_MAX {
            problems.push(Problem::new("provider", format!("more than {PROVIDERS_MAX} providers")));
        }
        for (at, provider) in providers.iter().enumerate() {
            let path = format!("provider[{at}]");
            if providers[..at].iter().any(|earlier| earlier.id == provider.id) {
                problems.push(Problem::new(format!("{path}.id"), format!("`{}` is used twice", provider.id)));
            }
            check_provider(provider, &path, &mut problems);
        }
        ConfigError::unless_empty(problems)?;
        Ok(Self(providers))
    }

    /// The provider and its model.
    pub fn find(&self, provider_id: &str, model_id: &str) -> Option<(&Provider, &Model)> {
        let provider = self.0.iter().find(|provider| provider.id == provider_id)?;
        let model = provider.models.iter().find(|model| model.id == model_id)?;
        Some((provider, model))
    }

    /// `(provider, model)` of the first model of the first provider.
    pub fn default_model(&self) -> Option<(&str, &str)> {
        self.0.iter().find_map(|provider| Some((provider.id.as_str(), provider.models.first()?.id.as_str())))
    }

    /// All providers, in the order of the settings.
    pub fn list(&self) -> &[Provider] {
        &self.0
    }

    /// What clients are shown of every model.
    pub fn facts(&self) -> Vec<Facts> {
        let models =
            self.0.iter().flat_map(|provider| provider.models.iter().map(move |model| (provider, model)));
        let facts = |(provider, model): (&Provider, &Model)| Facts {
            model: ModelRef { provider_id: provider.id.clone(), model_id: model.id.clone() },
            name: model.name.clone(),
            context_tokens: model.context_tokens,
            input_tokens: model.input_tokens,
            output_tokens: model.output_tokens,
            price: model.price.clone(),
            reasoning: model.reasoning,
            temperature: model.temperature,
            images: model.images,
            pdf: model.pdf,
            variants: model.efforts.iter().map(|effort| effort.as_str().to_owned()).collect(),
        };
        models.map(facts).collect()
    }

    /// Every `provider/model`, for error texts.
    pub fn known(&self) -> Vec<String> {
        let of = |provider: &Provider| {
            let id = provider.id.clone();
            provider.models.iter().map(move |model| format!("{id}/{}", model.id)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }
}

fn check_provider(provider: &Provider, path: &str, problems: &mut Vec<Problem>) {
    let mut say = |key: &str, text: String| problems.push(Problem::new(format!("{path}.{key}"), text));
    let is_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if provider.id.is_empty() || !provider.id.chars().all(is_id) {
        say("id", format!("`{}` must consist of letters, digits, `-`, `_` and `.`", provider.id));
    }
    match reqwest::Url::parse(&provider.base_url) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || !url.has_host() => {
            say("base_url", format!("`{}` is not an http or https address", provider.base_url));
        }
        // A query would end up in the middle of the address that is called.
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            say("base_url", format!("`{}` must not have a query or a fragment", provider.base_url));
        }
        Ok(_) => {}
        Err(error) => say("base_url", format!("`{}` is not an address: {error}", provider.base_url)),
    }
    if provider.header_timeout_ms == 0 || provider.chunk_timeout_ms == 0 {
        say("header_timeout_ms", "timeouts must be longer than zero".to_owned());
    }
    if provider.models.len() > PROVIDER_MODELS_MAX {
        say("models", format!("more than {PROVIDER_MODELS_MAX} models"));
    }
    for (at, model) in provider.models.iter().enumerate() {
        if model.id.is_empty() {
            say(&format!("models[{at}].id"), "is empty".to_owned());
        }
        if provider.models[..at].iter().any(|earlier| earlier.id == model.id) {
            say(&format!("models[{at}].id"), format!("`{}` is used twice", model.id));
        }
        if model.output_tokens == 0 || model.context_tokens < model.output_tokens {
            say(&format!("models[{at}]"), "needs 0 < output <= context".to_owned());
        }
    }
}

/// What `flotilla.toml` or the environment says about models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// All providers; may be empty.
    pub providers: Providers,
    /// `(provider, model)` for sessions that name none; always one of `providers`, `None` only if there is none.
    pub default_model: Option<(String, String)>,
    /// `(provider, model)` for titles and summaries, if the settings name one; always one of `providers`.
    pub small_model: Option<(String, String)>,
}

impl Config {
    /// The model for titles and summaries of a session that uses `provider_id/model_id`: the one that the settings
    /// name, else the small one of the same provider, else the session's own. `None` if that is not known.
    pub fn small_model_for(&self, provider_id: &str, model_id: &str) -> Option<(&Provider, &Model)> {
        if let Some((provider, model)) = &self.small_model {
            return self.providers.find(provider, model);
        }
        let (provider, own) = self.providers.find(provider_id, model_id)?;
        let small = provider.models.iter().find(|model| model.small);
        Some((provider, small.unwrap_or(own)))
    }
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Key path, for example `provider[0].models[1].context`.
    pub path: String,
    /// What is wrong.
    pub text: String,
}

impl Problem {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

/// Settings that cannot be used: all their problems, or the place where they stop being TOML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not TOML.
    #[error("the settings are not TOML: {0}")]
    Syntax(String),
    /// TOML with mistakes, one line each.
    #[error("{}", lines(.0))]
    Problems(Vec<Problem>),
}

impl ConfigError {
    fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Self::Problems(problems)),
        }
    }
}

fn lines(problems: &[Problem]) -> String {
    let line = |problem: &Problem| format!("{}: {}", problem.path, problem.text);
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Reads the `[[provider]]` tables, `model` and `small_model` of a `flotilla.toml`; all other top-level keys belong to
/// others.
///
/// ```toml
/// model = "anthropic/claude-sonnet-4-5"   # optional; otherwise the first model of the first provider
///
/// # small_model = "anthropic/claude-haiku-4-5"   # for titles; otherwise the provider's small model, if it has one
///
/// [[provider]]
/// kind = "anthropic"                      # or "openai-chat", "openai-responses", "gemini"
/// # id = "anthropic"                      # default: "anthropic", "openai" or "google"
/// # base_url = "https://api.anthropic.com"
/// # api_key_env = "ANTHROPIC_API_KEY"     # or api_key = "…"; the vendor's own address uses this name by itself
/// # header_timeout_ms = 60000
/// # chunk_timeout_ms = 120000
/// # models: without it, the catalogue's models (only for the vendor's own address)
///
/// [[provider]]
/// id = "local"
/// kind = "openai-chat"
/// base_url = "http://localhost:8080/v1"
/// models = [
///   { id = "deepseek-chat" },                                        # known: limits and prices are built in
///   { id = "mine", name = "Mine", context = 32000, output = 4000, reasoning = true,
///     variants = ["low", "high"], images = true, pdf = true, small = true,
///     price_usd_per_mtok = { input = 0.5, output = 1.5, cache_read = 0.05, cache_write = 0.5 },
///     tiers = [{ above = 200000, input = 1.0, output = 3.0 }] },
/// ]
/// ```
///
/// Prices of the cache that are not given are the input's. `input` bounds the prompt where it is smaller than the
/// context; `thinking` (`"effort"`, `"adaptive"` or `"budget"`) says how a model is told its variant where the
/// protocol's usual way is not its own. `env` looks up an environment variable.
///
/// # Errors
/// `Syntax`, or `Problems` with every mistake (unknown keys too).
pub fn parse(toml_text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    file::parse(toml_text, env)
}

/// Providers for the keys that the environment holds: `ANTHROPIC_API_KEY`, `OPENAI_API_KEY` and `GEMINI_API_KEY`, at
/// `ANTHROPIC_BASE_URL`, `OPENAI_BASE_URL` and `GEMINI_BASE_URL` if they are set, with the catalogue's models. OpenAI
/// itself is spoken to in Responses, another address in Chat Completions. Without any key the result is empty.
///
/// # Errors
/// `Problems` if an address cannot be used.
pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    environment::from_env(env)
}

#[cfg(test)]
mod tests;
