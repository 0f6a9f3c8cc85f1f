//! Facts about models, as workers report them and clients show them.

use crate::{conversation::message::ModelRef, money::Price};
use serde::{Deserialize, Serialize};

/// A model that a worker can call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Its provider and its name there.
    #[serde(flatten)]
    pub model: ModelRef,
    /// Its name for people.
    pub name: String,
    /// Prompt and answer together; tokens.
    pub context_tokens: u64,
    /// Longest prompt, if it is smaller than the context; tokens.
    #[serde(default)]
    pub input_tokens: Option<u64>,
    /// Longest answer; tokens.
    pub output_tokens: u64,
    pub price: Price,
    pub reasoning: bool,
    /// Whether it accepts a temperature.
    pub temperature: bool,
    pub images: bool,
    /// Whether it understands PDF documents.
    pub pdf: bool,
    /// Its reasoning efforts, by OpenCode's names of variants.
    #[serde(default)]
    pub variants: Vec<String>,
}
