//! Built-in facts about common models: limits, prices and what they accept. Settings override them; a model that is
//! not here gets the named defaults of `domain::limits` and costs nothing.

mod models;
pub(crate) mod sampling;

use crate::config::{Model, Thinking};
use crate::request::Effort;
use domain::money::{Price, Rates};

/// Whose model it is, as far as it matters for what a key without further settings offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Served by Anthropic.
    Anthropic,
    /// Served by OpenAI.
    OpenAi,
    /// Served by Google.
    Google,
    /// Served by others, over Chat Completions.
    Other,
}

/// What is known about a model. One row of `models`.
#[derive(Debug, Clone, Copy)]
struct Facts {
    family: Family,
    id: &'static str,
    name: &'static str,
    context_tokens: u64,
    input_tokens: Option<u64>,
    output_tokens: u64,
    base: Rates,
    tiers: &'static [(u64, Rates)],
    reasoning: bool,
    thinking: Thinking,
    efforts: &'static [Effort],
    temperature: bool,
    images: bool,
    pdf: bool,
    small: bool,
    reasoning_field: Option<&'static str>,
}

const fn rates([input, output, cache_read, cache_write]: [u64; 4]) -> Rates {
    Rates { input, output, cache_read, cache_write }
}

const fn model(family: Family, id: &'static str, name: &'static str) -> Facts {
    Facts {
        family,
        id,
        name,
        context_tokens: 0,
        input_tokens: None,
        output_tokens: 0,
        base: rates([0; 4]),
        tiers: &[],
        reasoning: false,
        thinking: Thinking::Fixed,
        efforts: &[],
        temperature: true,
        images: false,
        pdf: false,
        small: false,
        reasoning_field: None,
    }
}

impl Facts {
    const fn limits(self, [context_tokens, output_tokens]: [u64; 2]) -> Self {
        Self { context_tokens, output_tokens, ..self }
    }
    const fn price(self, base: [u64; 4]) -> Self {
        Self { base: rates(base), ..self }
    }
    const fn tiers(self, tiers: &'static [(u64, Rates)]) -> Self {
        Self { tiers, ..self }
    }
    const fn input(self, tokens: u64) -> Self {
        Self { input_tokens: Some(tokens), ..self }
    }
    const fn reasons(self, thinking: Thinking, efforts: &'static [Effort]) -> Self {
        Self { reasoning: true, thinking, efforts, ..self }
    }
    const fn own_temperature(self) -> Self {
        Self { temperature: false, ..self }
    }
    const fn images(self) -> Self {
        Self { images: true, ..self }
    }
    const fn documents(self) -> Self {
        Self { images: true, pdf: true, ..self }
    }
    const fn small(self) -> Self {
        Self { small: true, ..self }
    }
    const fn sends_back(self, field: &'static str) -> Self {
        Self { reasoning_field: Some(field), ..self }
    }

    fn to_model(self) -> Model {
        Model {
            id: self.id.to_owned(),
            name: self.name.to_owned(),
            context_tokens: self.context_tokens,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            price: Price { base: self.base, tiers: self.tiers.to_vec() },
            reasoning: self.reasoning,
            thinking: self.thinking,
            efforts: self.efforts.to_vec(),
            temperature: self.temperature,
            images: self.images,
            pdf: self.pdf,
            small: self.small,
            reasoning_field: self.reasoning_field.map(str::to_owned),
        }
    }
}

/// The known model with exactly this id. A dated id (`…-20250929`, `…-2025-08-07`) finds its undated model.
pub fn find(id: &str) -> Option<Model> {
    let facts = row(id).or_else(|| row(undated(id)))?;
    Some(Model { id: id.to_owned(), ..facts.to_model() })
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
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
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
