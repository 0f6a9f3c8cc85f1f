//! The type of a catalogue row.

use crate::model::{Effort, Family, Model, Thinking};
use domain::money::{Price, Rates};

/// The facts about one model: one row of `models`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) family: Family,
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) context_tokens: u64,
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: u64,
    pub(super) base: Rates,
    pub(super) tiers: &'static [(u64, Rates)],
    pub(super) reasoning: bool,
    pub(super) thinking: Thinking,
    pub(super) efforts: &'static [Effort],
    pub(super) temperature: bool,
    pub(super) images: bool,
    pub(super) pdf: bool,
    pub(super) small: bool,
    pub(super) reasoning_field: Option<&'static str>,
}

pub(super) const fn rates([input, output, cache_read, cache_write]: [u64; 4]) -> Rates {
    Rates { input, output, cache_read, cache_write }
}

pub(super) const fn model(family: Family, id: &'static str, name: &'static str) -> Facts {
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
    pub(super) const fn limits(self, [context_tokens, output_tokens]: [u64; 2]) -> Self {
        Self { context_tokens, output_tokens, ..self }
    }
    pub(super) const fn price(self, base: [u64; 4]) -> Self {
        Self { base: rates(base), ..self }
    }
    pub(super) const fn tiers(self, tiers: &'static [(u64, Rates)]) -> Self {
        Self { tiers, ..self }
    }
    pub(super) const fn input(self, tokens: u64) -> Self {
        Self { input_tokens: Some(tokens), ..self }
    }
    pub(super) const fn reasons(self, thinking: Thinking, efforts: &'static [Effort]) -> Self {
        Self { reasoning: true, thinking, efforts, ..self }
    }
    pub(super) const fn own_temperature(self) -> Self {
        Self { temperature: false, ..self }
    }
    pub(super) const fn images(self) -> Self {
        Self { images: true, ..self }
    }
    pub(super) const fn documents(self) -> Self {
        Self { images: true, pdf: true, ..self }
    }
    pub(super) const fn small(self) -> Self {
        Self { small: true, ..self }
    }
    pub(super) const fn sends_back(self, field: &'static str) -> Self {
        Self { reasoning_field: Some(field), ..self }
    }

    pub(super) fn to_model(self) -> Model {
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
