//! Providers from the text of a `flotilla.toml`. [`parse`] shows the shape.

use super::{
    environment::vendor,
    problem::{ConfigError, Problem},
    providers::{Config, Providers},
};
use crate::{
    catalogue,
    model::{Effort, Model, Thinking, UnknownEffort},
    provider::{ApiKey, Protocol, Provider},
};
use domain::money::{Price, Rates};
use toml::{Table, Value};

/// Highest accepted price, in dollars per million tokens. A higher one is almost certainly a mistake in the unit. A worker whose file has
/// one does not start.
const PRICE_USD_PER_MTOK_MAX: f64 = 100_000.0;

/// Reads the `[[provider]]` tables, `model` and `small_model` of a `flotilla.toml`. Other parsers read the other
/// top-level keys.
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
/// Missing cache prices equal the input price. `input` limits the prompt where it is smaller than the context.
/// `thinking` (`"effort"`, `"adaptive"` or `"budget"`) sets how the effort is sent to a model that does not use the
/// protocol's usual way. `env` looks up an environment variable.
///
/// # Errors
/// `Syntax`, or `Problems` with every mistake (including unknown keys).
pub fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    let table: Table =
        text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax(error.to_string()))?;
    let mut problems = Vec::new();
    let mut providers = Vec::new();
    match table.get("provider") {
        Some(Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                let mut keys = Keys::new(item, format!("provider[{at}]"), &mut problems);
                providers.extend(provider(&mut keys, env));
                keys.refuse_unknown();
            }
        }
        Some(_) => problems.push(Problem::new("provider", "must be written as [[provider]] tables")),
        None => {}
    }
    // The problems of the tables already name each broken one. Checks across tables need complete providers.
    let providers = match problems.is_empty() {
        true => Providers::new(providers)?,
        false => {
            if let Err(ConfigError::Problems(more)) = Providers::new(providers) {
                problems.extend(more);
            }
            return Err(ConfigError::Problems(problems));
        }
    };
    let owned = |(provider, model): (&str, &str)| (provider.to_owned(), model.to_owned());
    let default_model = chosen("model", &table, &providers)?.or_else(|| providers.default_model().map(owned));
    let small_model = chosen("small_model", &table, &providers)?;
    Ok(Config { providers, default_model, small_model })
}

/// The model that the top-level `key` names, if the key is set.
fn chosen(key: &str, table: &Table, providers: &Providers) -> Result<Option<(String, String)>, ConfigError> {
    let problem = |text: String| ConfigError::Problems(vec![Problem::new(key, text)]);
    let owned = |(provider, model): (&str, &str)| (provider.to_owned(), model.to_owned());
    let Some(value) = table.get(key) else { return Ok(None) };
    let pair = value.as_str().and_then(|text| text.split_once('/'));
    let pair = pair.ok_or_else(|| problem("must be \"provider/model\"".to_owned()))?;
    match providers.find(pair.0, pair.1) {
        Some(_) => Ok(Some(owned(pair))),
        None => {
            let models = providers.known().join(", ");
            Err(problem(format!(
                "`{}/{}` is not a configured model; the configured models are {models}",
                pair.0, pair.1
            )))
        }
    }
}

fn provider(keys: &mut Keys<'_>, env: &dyn Fn(&str) -> Option<String>) -> Option<Provider> {
    let kind = keys.text("kind");
    let protocol = Protocol::ALL.into_iter().find(|protocol| Some(protocol.as_str()) == kind.as_deref());
    let Some(protocol) = protocol else {
        let kinds = Protocol::ALL.map(Protocol::as_str).join(", ");
        match kind {
            Some(other) => keys.say("kind", format!("`{other}` must be one of {kinds}")),
            None => keys.say("kind", format!("is missing: one of {kinds}")),
        }
        keys.forgive_rest();
        return None;
    };
    let vendor = vendor(protocol);
    let base_url = keys.text("base_url");
    let is_vendor = base_url.as_deref().is_none_or(|url| protocol.is_vendor(url));
    let id = keys.text("id").unwrap_or_else(|| vendor.id.to_owned());
    let base_url = base_url.unwrap_or_else(|| protocol.default_base_url().to_owned());
    let mut provider = Provider::new(id, protocol, base_url);
    provider.api_key = api_key(keys, env, is_vendor.then_some(vendor.key_variable));
    if let Some(value) = keys.count("header_timeout_ms") {
        provider.header_timeout_ms = value;
    }
    if let Some(value) = keys.count("chunk_timeout_ms") {
        provider.chunk_timeout_ms = value;
    }
    provider.models = match keys.take("models") {
        Some(Value::Array(items)) => {
            let is_small = |item: &Value| item.get("small").and_then(Value::as_bool) == Some(true);
            let is_chosen = items.iter().any(is_small);
            let read = |(at, item)| {
                let mut model = model(&mut keys.inside("models", at, item), protocol)?;
                // The settings' choice replaces the catalogue's.
                model.small = if is_chosen { is_small(item) } else { model.small };
                Some(model)
            };
            items.iter().enumerate().filter_map(read).collect()
        }
        Some(_) => {
            keys.say("models", "must be a list of tables");
            Vec::new()
        }
        None if is_vendor => catalogue::list(vendor.family),
        None => {
            keys.say("models", "is missing; list the models that this server offers");
            Vec::new()
        }
    };
    Some(provider)
}

fn api_key(keys: &mut Keys<'_>, env: &dyn Fn(&str) -> Option<String>, usual: Option<&str>) -> Option<ApiKey> {
    let set = |name: &str| env(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let inline_key = keys.text("api_key");
    let named = keys.text("api_key_env");
    match (inline_key, named) {
        (Some(_), Some(_)) => {
            keys.say("api_key", "give either api_key or api_key_env");
            None
        }
        (Some(key), None) => Some(ApiKey::new(key)),
        (None, Some(name)) => {
            let key = set(&name);
            if key.is_none() {
                keys.say("api_key_env", format!("the environment variable {name} is not set"));
            }
            key.map(ApiKey::new)
        }
        (None, None) => {
            let name = usual?;
            let key = set(name);
            if key.is_none() {
                keys.say("api_key_env", format!("no key: give api_key or api_key_env, or set {name}"));
            }
            key.map(ApiKey::new)
        }
    }
}

fn model(keys: &mut Keys<'_>, protocol: Protocol) -> Option<Model> {
    let Some(id) = keys.text("id") else {
        keys.say("id", "is missing");
        keys.forgive_rest();
        return None;
    };
    let mut model = catalogue::find_or_default(&id);
    if let Some(name) = keys.text("name") {
        model.name = name;
    }
    limits(keys, &mut model);
    thinking(keys, &mut model, protocol);
    if let Some(flag) = keys.flag("temperature") {
        model.temperature = flag;
    }
    if let Some(flag) = keys.flag("images") {
        model.images = flag;
    }
    if let Some(flag) = keys.flag("pdf") {
        model.pdf = flag;
    }
    if let Some(flag) = keys.flag("small") {
        model.small = flag;
    }
    if let Some(field) = keys.text("reasoning_field") {
        model.reasoning_field = Some(field);
    }
    prices(keys, &mut model);
    keys.refuse_unknown();
    Some(model)
}

fn limits(keys: &mut Keys<'_>, model: &mut Model) {
    if let Some(tokens) = keys.count("context") {
        model.context_tokens = tokens;
        // A context below the catalogue's also lowers the catalogue's other limits.
        model.input_tokens = model.input_tokens.filter(|input| *input < tokens);
        model.output_tokens = model.output_tokens.min(tokens);
    }
    if let Some(tokens) = keys.count("output") {
        model.output_tokens = tokens;
    }
    if let Some(tokens) = keys.count("input") {
        model.input_tokens = Some(tokens);
    }
}

fn thinking(keys: &mut Keys<'_>, model: &mut Model, protocol: Protocol) {
    if let Some(flag) = keys.flag("reasoning") {
        model.reasoning = flag;
        if !flag {
            model.thinking = Thinking::Fixed;
            model.efforts.clear();
        }
    }
    match keys.take("variants") {
        Some(Value::Array(words)) => {
            let effort = |word: &Value| word.as_str().and_then(|word| word.parse::<Effort>().ok());
            match words.iter().map(effort).collect::<Option<Vec<_>>>() {
                Some(efforts) => model.efforts = efforts,
                None => keys.say("variants", format!("each {UnknownEffort}")),
            }
            if model.thinking == Thinking::Fixed && !model.efforts.is_empty() {
                model.thinking = protocol.usual_thinking();
            }
        }
        Some(_) => keys.say("variants", "must be a list of strings"),
        None => {}
    }
    match keys.text("thinking").as_deref() {
        Some("effort") => model.thinking = Thinking::Effort,
        Some("adaptive") => model.thinking = Thinking::Adaptive,
        Some("budget") => model.thinking = Thinking::Budget,
        Some(_) => keys.say("thinking", "must be \"effort\", \"adaptive\" or \"budget\""),
        None => {}
    }
}

fn prices(keys: &mut Keys<'_>, model: &mut Model) {
    if let Some(value) = keys.take("price_usd_per_mtok") {
        let mut inner = keys.at("price_usd_per_mtok", value);
        model.price = Price { base: rates(&mut inner), tiers: Vec::new() };
        inner.refuse_unknown();
    }
    match keys.take("tiers") {
        Some(Value::Array(items)) => {
            model.price.tiers = items
                .iter()
                .enumerate()
                .map(|(at, item)| tier(&mut keys.inside("tiers", at, item)))
                .collect();
        }
        Some(_) => keys.say("tiers", "must be a list of tables"),
        None => {}
    }
}

fn tier(keys: &mut Keys<'_>) -> (u64, Rates) {
    let above = keys.count("above");
    if above.is_none() {
        keys.say("above", "is missing; give the number of prompt tokens above which these prices apply");
    }
    let rates = rates(keys);
    keys.refuse_unknown();
    (above.unwrap_or_default(), rates)
}

fn rates(keys: &mut Keys<'_>) -> Rates {
    let input = keys.price("input");
    let output = keys.price("output");
    for (name, value) in [("input", input), ("output", output)] {
        if value.is_none() && !keys.has(name) {
            keys.say(name, "is missing");
        }
    }
    let input = input.unwrap_or_default();
    Rates {
        input,
        output: output.unwrap_or_default(),
        cache_read: keys.price("cache_read").unwrap_or(input),
        cache_write: keys.price("cache_write").unwrap_or(input),
    }
}

/// A table that is read key by key. It remembers the keys that were read and collects the problems with their paths.
struct Keys<'a> {
    table: Option<&'a Table>,
    path: String,
    read: Vec<&'static str>,
    is_forgiven: bool,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Keys<'a> {
    fn new(value: &'a Value, path: String, problems: &'a mut Vec<Problem>) -> Self {
        let table = value.as_table();
        if table.is_none() {
            problems.push(Problem::new(path.clone(), "must be a table"));
        }
        Self { table, path, read: Vec::new(), is_forgiven: table.is_none(), problems }
    }

    fn at<'b>(&'b mut self, key: &str, value: &'b Value) -> Keys<'b> {
        Keys::new(value, format!("{}.{key}", self.path), self.problems)
    }

    fn inside<'b>(&'b mut self, key: &str, at: usize, value: &'b Value) -> Keys<'b> {
        Keys::new(value, format!("{}.{key}[{at}]", self.path), self.problems)
    }

    fn say(&mut self, key: &str, text: impl Into<String>) {
        // A value that is not a table was already reported; do not report its missing keys as well.
        if self.table.is_some() {
            self.problems.push(Problem::new(format!("{}.{key}", self.path), text));
        }
    }

    fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        self.read.push(key);
        self.table?.get(key)
    }

    fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
            _ => {
                self.say(key, "must be a non-empty string");
                None
            }
        }
    }

    fn count(&mut self, key: &'static str) -> Option<u64> {
        let number = self.take(key)?.as_integer().and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            self.say(key, "must be a positive integer");
        }
        number
    }

    fn flag(&mut self, key: &'static str) -> Option<bool> {
        let flag = self.take(key)?.as_bool();
        if flag.is_none() {
            self.say(key, "must be true or false");
        }
        flag
    }

    /// Reads dollars per million tokens as micro-dollars per million tokens.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "range checked"
    )]
    fn price(&mut self, key: &'static str) -> Option<u64> {
        let value = self.take(key)?;
        let dollars = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
        let dollars = dollars.filter(|dollars| (0.0..=PRICE_USD_PER_MTOK_MAX).contains(dollars));
        if dollars.is_none() {
            self.say(
                key,
                format!("must be dollars for a million tokens, from 0 to {PRICE_USD_PER_MTOK_MAX}"),
            );
        }
        dollars.map(|dollars| (dollars * 1e6).round() as u64)
    }

    /// Suppresses the unknown-key check, for a problem that makes the other keys meaningless.
    fn forgive_rest(&mut self) {
        self.is_forgiven = true;
    }

    fn refuse_unknown(&mut self) {
        let Some(table) = self.table.filter(|_| !self.is_forgiven) else { return };
        for key in table.keys().filter(|key| !self.read.contains(&key.as_str())) {
            self.problems.push(Problem::new(
                format!("{}.{key}", self.path),
                format!("is not a known key; known here: {}", self.read.join(", ")),
            ));
        }
    }
}
