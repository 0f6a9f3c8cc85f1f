//! All providers of a deployment, and the models it uses by default.

use super::problem::{ConfigError, Problem};
use crate::{model::Model, provider::Provider};
use domain::{
    conversation::message::ModelRef,
    limits::{PROVIDER_MODELS_MAX, PROVIDERS_MAX},
    model::Facts,
};

/// All providers of a deployment, validated.
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

    /// What clients see of every model.
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
        // A query would end up in the middle of the request URL.
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            say("base_url", format!("`{}` must not have a query or a fragment", provider.base_url));
        }
        Ok(_) => {}
        Err(error) => say("base_url", format!("`{}` is not an address: {error}", provider.base_url)),
    }
    if provider.header_timeout_ms == 0 || provider.chunk_timeout_ms == 0 {
        say("header_timeout_ms", "must be positive".to_owned());
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
            say(&format!("models[{at}]"), "output must be positive and at most context".to_owned());
        }
    }
}

/// The model configuration of `flotilla.toml` or the environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// All providers; may be empty.
    pub providers: Providers,
    /// `(provider, model)` for sessions that do not name one. It is always one of `providers`, and `None` only if
    /// `providers` is empty.
    pub default_model: Option<(String, String)>,
    /// `(provider, model)` for titles and summaries, if the settings name one. It is always one of `providers`.
    pub small_model: Option<(String, String)>,
}

impl Config {
    /// The model for titles and summaries of a session that uses `provider_id/model_id`: the one that the settings
    /// name, else the small model of the same provider, else the session's own. `None` if the session's model is not
    /// configured.
    pub fn small_model_for(&self, provider_id: &str, model_id: &str) -> Option<(&Provider, &Model)> {
        if let Some((provider, model)) = &self.small_model {
            return self.providers.find(provider, model);
        }
        let (provider, own) = self.providers.find(provider_id, model_id)?;
        let small = provider.models.iter().find(|model| model.small);
        Some((provider, small.unwrap_or(own)))
    }
}
