//! A model of a provider: its limits, its price, the input it accepts and its reasoning efforts.

use domain::money::Price;
use std::str::FromStr;

/// How hard a reasoning model thinks, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    Off,
    /// As little as it can.
    Minimal,
    Low,
    Medium,
    High,
    /// Longer than most tasks need.
    XHigh,
    /// As long as it can.
    Max,
}

/// The error for a word that does not name an effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one of none, minimal, low, medium, high, xhigh and max")]
pub struct UnknownEffort;

impl Effort {
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

/// How the effort is sent to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thinking {
    /// It is not sent: the model decides by itself, or does not think.
    #[default]
    Fixed,
    /// As a word. OpenAI: `reasoning_effort` or `reasoning.effort`; Gemini 3: `thinkingLevel`.
    Effort,
    /// Anthropic's newer models: `thinking: adaptive` with `output_config.effort`.
    Adaptive,
    /// As a number of tokens. Anthropic's older models: `thinking.budget_tokens`; Gemini 2.5: `thinkingBudget`.
    Budget,
}

/// A model that a provider serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The provider's id of the model.
    pub id: String,
    /// The display name.
    pub name: String,
    /// Prompt and answer together; tokens.
    pub context_tokens: u64,
    /// Longest prompt where it is smaller than the context; tokens.
    pub input_tokens: Option<u64>,
    /// Longest answer; tokens.
    pub output_tokens: u64,
    pub price: Price,
    pub reasoning: bool,
    /// How the effort is sent to it.
    pub thinking: Thinking,
    /// The efforts it offers; empty if the effort cannot be set.
    pub efforts: Vec<Effort>,
    /// Whether it accepts a temperature.
    pub temperature: bool,
    pub images: bool,
    /// Whether it accepts PDF documents.
    pub pdf: bool,
    /// Whether it is its provider's model for titles and summaries.
    pub small: bool,
    /// The message field in which a compatible server expects the reasoning to be returned, for example
    /// `reasoning_content`.
    pub reasoning_field: Option<String>,
}

impl Model {
    /// The effort that is sent for `wanted`: the nearest one that the model offers, preferring the lower one. If the
    /// model can think or not think, neither choice ever replaces the other.
    pub fn effort(&self, wanted: Option<Effort>) -> Option<Effort> {
        let wanted = wanted?;
        if self.efforts.contains(&wanted) {
            return Some(wanted);
        }
        let thinking = || self.efforts.iter().copied().filter(|effort| *effort != Effort::Off);
        thinking().filter(|effort| *effort < wanted).max().or_else(|| thinking().min())
    }
}

/// The vendor of a model. It decides which models a key without further settings offers.
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
