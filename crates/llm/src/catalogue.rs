//! Built-in facts about common models: limits, prices and accepted input. Settings override them. A model that the
//! catalogue does not list gets the defaults of `domain::limits` and costs nothing.

mod facts;
mod models;

use crate::model::{Family, Model, Thinking};
use domain::money::Price;
use facts::Facts;

/// Context of a model that neither the catalogue nor the settings describe; tokens.
const MODEL_CONTEXT_TOKENS_DEFAULT: u64 = 128_000;
/// Longest answer of a model that neither the catalogue nor the settings describe; tokens.
const MODEL_OUTPUT_TOKENS_DEFAULT: u64 = 8_192;

/// The known model with exactly this id. A dated id (`…-20250929`, `…-2025-08-07`) matches its undated model.
pub fn find(id: &str) -> Option<Model> {
    let facts = row(id).or_else(|| row(undated(id)))?;
    Some(Model { id: id.to_owned(), ..facts.to_model() })
}

/// The facts about `id`, or the defaults for a model that is not in the catalogue.
pub fn find_or_default(id: &str) -> Model {
    find(id).unwrap_or_else(|| Model {
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

/// All known models of a family, newest first.
pub fn list(family: Family) -> Vec<Model> {
    models::MODELS.iter().filter(|facts| facts.family == family).map(|facts| facts.to_model()).collect()
}

fn row(id: &str) -> Option<&'static Facts> {
    models::MODELS.iter().find(|facts| facts.id == id)
}

fn undated(id: &str) -> &str {
    let is_date = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '-');
    for length in ["-20250929".len(), "-2025-08-07".len()] {
        if let Some((name, date)) = id.len().checked_sub(length).and_then(|at| id.split_at_checked(at))
            && date.starts_with("-20")
            && is_date(date)
        {
            return name;
        }
    }
    id
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn every_row_is_complete_and_named_once() {
        for facts in models::MODELS {
            assert!(facts.context_tokens >= facts.output_tokens && facts.output_tokens > 0, "{facts:?}");
            assert!(facts.base.input > 0 && facts.base.output >= facts.base.input, "{facts:?}");
            assert!(facts.base.cache_read <= facts.base.input, "{facts:?}");
            assert_eq!(models::MODELS.iter().filter(|other| other.id == facts.id).count(), 1, "{}", facts.id);
        }
        for family in [Family::Anthropic, Family::OpenAi, Family::Google] {
            let models = list(family);
            assert_eq!(
                models.iter().filter(|model| model.small).count(),
                1,
                "{family:?} has one small model"
            );
            assert!(!models[0].small, "the small one is not what sessions use by default");
        }
    }

    #[test]
    fn dated_names_have_the_facts_of_their_model() {
        let model = find("claude-sonnet-4-5-20250929").unwrap();
        assert_eq!((model.id.as_str(), model.price.base.input), ("claude-sonnet-4-5-20250929", 3_000_000));
        assert_eq!(find("gpt-5-2025-08-07").unwrap().input_tokens, Some(272_000));
        assert_eq!(find("gpt-5.4").unwrap().price.tiers.len(), 1);
        assert_eq!(find("no-such-model").map(|model| model.id), None);
        assert_eq!(find("ä-20250929").map(|model| model.id), None);
    }
}
