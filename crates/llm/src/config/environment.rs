//! Providers from the environment, for a start without a settings file.

use super::{
    problem::{ConfigError, Problem},
    providers::{Config, Providers},
};
use crate::{
    catalogue,
    model::Family,
    provider::{ApiKey, Protocol, Provider},
};

/// The environment variables and the defaults of one vendor.
pub(super) struct Vendor {
    pub(super) id: &'static str,
    pub(super) protocol: Protocol,
    pub(super) family: Family,
    pub(super) key_variable: &'static str,
    pub(super) url_variable: &'static str,
}

pub(super) fn vendor(protocol: Protocol) -> Vendor {
    match protocol {
        Protocol::Anthropic => Vendor {
            id: "anthropic",
            protocol,
            family: Family::Anthropic,
            key_variable: "ANTHROPIC_API_KEY",
            url_variable: "ANTHROPIC_BASE_URL",
        },
        Protocol::OpenAiChat | Protocol::OpenAiResponses => Vendor {
            id: "openai",
            protocol,
            family: Family::OpenAi,
            key_variable: "OPENAI_API_KEY",
            url_variable: "OPENAI_BASE_URL",
        },
        Protocol::Gemini => Vendor {
            id: "google",
            protocol,
            family: Family::Google,
            key_variable: "GEMINI_API_KEY",
            url_variable: "GEMINI_BASE_URL",
        },
    }
}

/// Providers for the keys in the environment: `ANTHROPIC_API_KEY`, `OPENAI_API_KEY` and `GEMINI_API_KEY`.
/// `ANTHROPIC_BASE_URL`, `OPENAI_BASE_URL` and `GEMINI_BASE_URL` override their addresses. Each provider has the
/// catalogue's models. OpenAI itself is called over Responses, another address over Chat Completions. Without any key
/// the result is empty.
///
/// # Errors
/// `Problems` if an address is invalid.
pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    let set = |name: &str| env(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let provider = |protocol: Protocol| {
        let vendor = match set("OPENAI_BASE_URL") {
            // Most OpenAI-compatible servers support only the older protocol.
            Some(url) if protocol == Protocol::OpenAiResponses && !protocol.is_vendor(&url) => {
                vendor(Protocol::OpenAiChat)
            }
            Some(_) | None => vendor(protocol),
        };
        let key = set(vendor.key_variable)?;
        let base_url =
            set(vendor.url_variable).unwrap_or_else(|| vendor.protocol.default_base_url().to_owned());
        let mut provider = Provider::new(vendor.id, vendor.protocol, base_url);
        provider.api_key = Some(ApiKey::new(key));
        provider.models = catalogue::list(vendor.family);
        Some(provider)
    };
    let vendors = [Protocol::Anthropic, Protocol::OpenAiResponses, Protocol::Gemini];
    let found: Vec<Provider> = vendors.into_iter().filter_map(provider).collect();
    let variables: Vec<&str> = found.iter().map(|provider| vendor(provider.protocol).url_variable).collect();
    let providers = Providers::new(found).map_err(|error| renamed(error, &variables))?;
    let default_model =
        providers.default_model().map(|(provider, model)| (provider.to_owned(), model.to_owned()));
    Ok(Config { providers, default_model, small_model: None })
}

/// Only an address can be wrong here. Name its environment variable instead of a key of the file.
fn renamed(error: ConfigError, variables: &[&str]) -> ConfigError {
    let ConfigError::Problems(problems) = error else { return error };
    let rename = |problem: Problem| {
        let at =
            variables.iter().enumerate().find(|(at, _)| problem.path == format!("provider[{at}].base_url"));
        match at {
            Some((_, variable)) => Problem::new(*variable, problem.text),
            None => problem,
        }
    };
    ConfigError::Problems(problems.into_iter().map(rename).collect())
}
