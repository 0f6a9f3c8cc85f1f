//! `flotilla models`: the models that prompts may name.

use crate::{
    client::Client,
    exit::Exit,
    terminal::{
        output::{ListText, Output},
        paint::{Paint, one_line},
        table::{Side, Table},
    },
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Characters of a model's title.
const TITLE_CHARS: usize = 40;

/// A model that the gateway serves.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Model {
    /// `provider/model`.
    pub(crate) name: String,
    pub(crate) title: String,
    /// Tokens of its context; 0: not known.
    context_tokens: u64,
    /// Dollars for a million tokens that it reads and writes.
    input_usd: f64,
    output_usd: f64,
}

impl Model {
    fn of(model: &Value) -> Self {
        let text = |name: &str| model[name].as_str().unwrap_or_default().to_owned();
        let usd = |name: &str| model["cost"][name].as_f64().unwrap_or_default();
        Self {
            name: format!("{}/{}", text("providerID"), text("id")),
            title: text("name"),
            context_tokens: model["limit"]["context"].as_u64().unwrap_or_default(),
            input_usd: usd("input"),
            output_usd: usd("output"),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let Self { name, title, context_tokens, input_usd, output_usd } = self;
        json!({
            "type": "model", "name": name, "title": title, "context_tokens": context_tokens,
            "input_usd_per_mtok": input_usd, "output_usd_per_mtok": output_usd,
        })
    }
}

pub(crate) async fn run(client: &Client, output: &Output) -> Result<Exit> {
    let models = load(client).await?;
    output.list(
        &models,
        &ListText { to_json: Model::to_json, table: &table, none: "no models are configured" },
    )?;
    Ok(Exit::Done)
}

/// Loads the models, by provider.
///
/// # Errors
/// The refusal of the gateway.
pub(crate) async fn load(client: &Client) -> Result<Vec<Model>> {
    parse(&client.get_json("/config/providers", None).await.context("list the models")?)
}

/// Reads OpenCode's list of providers.
pub(crate) fn parse(answer: &Value) -> Result<Vec<Model>> {
    let providers = answer["providers"].as_array().context("read the providers")?;
    let models = providers.iter().filter_map(|provider| provider["models"].as_object());
    Ok(models.flat_map(serde_json::Map::values).map(Model::of).collect())
}

fn table(models: &[Model], paint: Paint) -> String {
    let heading = ["MODEL", "CONTEXT", "$/M IN", "$/M OUT", "TITLE"];
    let mut table =
        Table::new(heading.map(|name| (name, if name == "MODEL" { Side::Left } else { Side::Right })));
    for Model { name, title, context_tokens, input_usd, output_usd } in models {
        let context = if *context_tokens == 0 { "-".to_owned() } else { context_tokens.to_string() };
        let title = one_line(title, TITLE_CHARS);
        table.push([name.clone(), context, format!("{input_usd:.2}"), format!("{output_usd:.2}"), title]);
    }
    table.text(paint)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn models_come_from_the_list_of_providers() {
        let model = json!({
            "id": "demo", "providerID": "scripted", "name": "Demo", "cost": {"input": 3, "output": 15.5}, "limit": {"context": 0},
        });
        let models = parse(&json!({"providers": [{"id": "scripted", "models": {"demo": model}}]})).unwrap();
        let text = table(&models, Paint::Plain);
        assert_eq!(text.lines().nth(1), Some("scripted/demo        -    3.00    15.50   Demo"), "{text}");
        assert!(parse(&json!({})).is_err());
    }
}
