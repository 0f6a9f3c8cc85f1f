//! Settings in OpenCode's shape (`opencode.json`, `.opencode/agent/*.md`, `.opencode/command/*.md`): what they say once
//! they are read and merged. Reads no file and no environment: texts and look-ups come in as arguments.
//!
//! The way: [`document::Document::json`] or [`markdown`](document::Document::markdown) → `substitute` →
//! [`merge::merge`] → [`Settings`], and [`explain`] for people.

pub mod document;
pub mod explain;
mod front_matter;
mod jsonc;
pub mod markdown;
pub mod merge;
pub mod models;
pub mod node;
pub mod problem;
mod read;
pub mod repository;
mod rules;
pub mod standing;
pub mod substitute;
#[cfg(test)]
mod tests;

use domain::{agent::Mode, command::Command, level::Level, message::ModelRef, permission::Rules};
use models::{Limit, Models};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fmt};

/// What the files of settings say together. What none of them says is `None` or empty: the default is the reader's.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// Who answers when a prompt names no model.
    pub model: Option<ModelRef>,
    /// Who writes titles and the like.
    pub small_model: Option<ModelRef>,
    /// Which agent answers when a prompt names none.
    pub default_agent: Option<String>,
    /// Agents by name: further ones, and changes to the built-in ones.
    pub agents: BTreeMap<String, Agent>,
    /// Commands by name.
    pub commands: BTreeMap<String, Command>,
    /// What every agent may do. One list for each level that says something: all of them bind.
    pub permission: Vec<LevelRules>,
    /// Which models may be asked, one for each level that says something: all of them bind.
    pub models: Vec<Models>,
    /// Files, globs and URLs with instructions for the model, in order.
    pub instructions: Vec<String>,
    /// When and how history is shortened.
    pub compaction: Compaction,
    /// How much of a tool's output the model sees.
    pub tool_output: ToolOutput,
    /// Whether the state of the files is kept at each step.
    pub snapshot: Option<bool>,
}

impl Settings {
    /// The lists of rules that bind `agent`, one for each level that says something; the strictest verdict counts
    /// ([`domain::permission::strictest`]). Inside a level the agent's own rules come after those for every agent.
    pub fn rules(&self, agent: &str) -> Vec<Rules> {
        let own = self.agents.get(agent).map_or(&[][..], |agent| &agent.permission);
        let of = |lists: &[LevelRules], level| {
            let lists = lists.iter().filter(move |list| list.level == level);
            lists.flat_map(|list| list.rules.0.clone()).collect::<Vec<_>>()
        };
        let lists = Level::ALL.map(|level| Rules([of(&self.permission, level), of(own, level)].concat()));
        lists.into_iter().filter(|rules| !rules.0.is_empty()).collect()
    }
}

impl Settings {
    /// Whether every level lets `model` be asked.
    pub fn allows(&self, model: &ModelRef) -> bool {
        self.models.iter().all(|level| level.allows(model))
    }

    /// The narrowest bounds that any level gives `model`.
    pub fn limit(&self, model: &ModelRef) -> Limit {
        self.models.iter().fold(Limit::default(), |least, level| least.and(level.limit(model)))
    }
}

/// The rules of one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelRules {
    /// Whose rules.
    pub level: Level,
    /// In order: the last one that fits decides.
    pub rules: Rules,
}

/// An agent, or what changes in a built-in one.
///
/// ```json
/// {"model":"anthropic/claude","prompt":"You review.","mode":"subagent","permission":{"edit":"deny"}}
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Agent {
    /// Which model it asks.
    pub model: Option<ModelRef>,
    /// Which variant of that model.
    pub variant: Option<String>,
    /// Its system prompt.
    pub prompt: Option<String>,
    /// What a model is told that chooses a subagent.
    pub description: Option<String>,
    /// Where it may be used.
    pub mode: Option<Mode>,
    /// Whether people and models are not shown it.
    pub hidden: Option<bool>,
    /// Model steps in one turn; the platform's own bound stays.
    pub steps: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// What it may do, like [`Settings::permission`].
    pub permission: Vec<LevelRules>,
    /// Whether it does not exist.
    pub disable: Option<bool>,
    /// What OpenCode would hand to the model's provider.
    pub options: Options,
}

/// JSON in OpenCode's shape that is kept as it was written. It may hold secrets, hence a `Debug` that shows nothing.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Options(pub Map<String, Value>);

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Options(***)")
    }
}

/// When and how history is shortened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compaction {
    /// Whether history is summarized before it exceeds the context.
    pub auto: Option<bool>,
    /// Whether old tool output is cleared.
    pub prune: Option<bool>,
    /// Tokens kept free for the answer.
    pub reserved: Option<u64>,
    /// Newest tokens that a summary leaves as they are.
    pub preserve_recent_tokens: Option<u64>,
    /// Newest turns that a summary leaves as they are.
    pub tail_turns: Option<u64>,
}

/// How much of a tool's output the model sees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolOutput {
    /// Lines.
    pub max_lines: Option<u64>,
    /// Bytes.
    pub max_bytes: Option<u64>,
}
