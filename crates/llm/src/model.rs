//! A model of a provider: its limits, its price, what it accepts, and how hard it can be asked to think.

use domain::money::Price;
use std::str::FromStr;

/// How hard a reasoning model thinks, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Not at all.
    Off,
    /// As little as it can.
    Minimal,
    /// Briefly.
    Low,
    /// As most callers want.
    Medium,
    /// Long.
    High,
    /// Longer than most tasks need.
    XHigh,
    /// As long as it can.
    Max,
}

/// A word that names no effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one of none, minimal, low, medium, high, xhigh and max")]
pub struct UnknownEffort;

impl Effort {
    /// All efforts.
    pub const ALL: [Self; 7] =
        [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// The word that providers and OpenCode's variants use; `none` for [`Effort::Off`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }
}

impl FromStr for Effort {
    type Err = UnknownEffort;

    fn from_str(word: &str) -> Result<Self, UnknownEffort> {
        Self::ALL.into_iter().find(|effort| effort.as_str() == word).ok_or(UnknownEffort)
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
