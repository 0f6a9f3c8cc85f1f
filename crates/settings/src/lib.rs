//! Settings in OpenCode's format (`opencode.json`, `.opencode/agent/*.md`, `.opencode/mode/*.md`, `.opencode/command/*.md`), what Claude Code's
//! `.claude/settings.json` forbids, and the environments that repositories
//! propose (`.flotilla/config.yaml`): parsed, merged by level, and explained with their origins. Pure: this crate reads no file and no environment; texts and look-ups are arguments.
//!
//! The steps: [`document::Document::json`] or [`markdown`](document::Document::markdown) → `substitute` →
//! [`merge::merge`] → [`Settings`], and [`explain`] for people.

pub mod document;
pub mod explain;
pub mod markdown;
pub mod meaning;
pub mod merge;
pub mod models;
pub mod node;
mod overlay;
pub mod problem;
pub mod proposal;
pub mod push;
pub mod repository;
pub mod standing;
pub mod substitute;
mod syntax;
#[cfg(test)]
mod tests;

use domain::{
    conversation::{command::Command, message::ModelRef},
    egress::{
        allow::{AllowList, AllowLists},
        git::GitPrefix,
        push::branch::BranchPrefix,
    },
    policy::{agent::Mode, level::Level, permission::Rules},
    secret::SecretName,
};
use models::{Limit, Models};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The merged settings of all files. A field that no file sets is `None` or empty; the caller has the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// The model for prompts that do not name one.
    pub model: Option<ModelRef>,
    /// The model for titles and similar calls.
    pub small_model: Option<ModelRef>,
    /// The agent for prompts that do not name one.
    pub default_agent: Option<String>,
    /// Agents by name: new ones, and changes to the built-in ones.
    pub agents: BTreeMap<String, Agent>,
    /// Commands by name.
    pub commands: BTreeMap<String, Command>,
    /// The permissions of every agent: one list for each level that defines any. All lists bind.
    pub permission: Vec<LevelRules>,
    /// The models that may be called: one restriction for each level that defines any. All of them bind.
    pub models: Vec<Models>,
    /// Files, globs and URLs with instructions for the model, in order.
    pub instructions: Vec<String>,
    /// When and how the worker shortens the history.
    pub compaction: Compaction,
    /// How much of a tool's output the model sees.
    pub tool_output: ToolOutput,
    /// Whether the worker takes a snapshot of the files at each step.
    pub snapshot: Option<bool>,
    /// Generations of subtasks below a session: the least bound of all levels.
    pub subagent_depth: Option<u64>,
    /// What happens to a session whose files a sandbox machine lost.
    pub lost_workspace: Option<LostWorkspace>,
    /// The image of new sessions.
    pub image: Option<ImageSetting>,
    /// A script that installs what a repository needs.
    pub install: Option<String>,
    /// A script that runs at each start of a sandbox.
    pub start: Option<String>,
    /// Whether programs may trace each other.
    pub allow_ptrace: Option<bool>,
    /// Whether programs may make user namespaces.
    pub allow_user_namespaces: Option<bool>,
    /// Variables of the scripts, of all commands and of terminals.
    pub variables: BTreeMap<String, String>,
    /// The secrets that setup and install get, by the variable that has the value.
    pub secrets: BTreeMap<String, SecretName>,
    /// The hosts that sessions may reach: one list for each level that defines any. All lists bind.
    pub network: Vec<LevelHosts>,
    /// The hosts that the setup may reach, likewise.
    pub setup_network: Vec<LevelHosts>,
    /// The secrets that open git repositories, by the prefix of their URLs. No two prefixes mean the same place.
    pub git_credentials: BTreeMap<GitPrefix, SecretName>,
    /// Where people may push what sessions have made, by the prefix of the URLs. No two prefixes mean the same place.
    pub git_push: BTreeMap<GitPrefix, GitPush>,
}

/// How people push to the repositories below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPush {
    /// The secret that opens them. One that reads them is not enough: pushing takes its own entry.
    pub credential: SecretName,
    /// The beginning of the branches that sessions may get.
    pub branches: BranchPrefix,
    /// Paths that no commit may touch, in addition to those that every push has ([`domain::egress::push::paths`]).
    pub deny: Vec<String>,
}

/// The image of new sessions, and how its registry is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSetting {
    /// A tag or a digest: `ghcr.io/acme/dev:1`.
    pub reference: String,
    /// The name of a secret of the project or the tenant; `None`: anybody may read the image.
    pub credential: Option<String>,
    /// A script that sets tools up on top of the image.
    pub setup: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelHosts {
    pub level: Level,
    /// Hosts, `*.` and a host, and presets ([`domain::egress::allow`]).
    pub allow: Vec<String>,
    /// Hosts that people may allow in addition, when an agent asks for them. The list of a setup has none.
    pub ask: Vec<String>,
}

impl LevelHosts {
    /// No host of a level.
    pub(crate) fn none(level: Level) -> Self {
        Self { level, allow: vec![], ask: vec![] }
    }

    /// The place of these hosts, for people: `environment.network.allow in the settings of the project`.
    pub fn setting(&self, name: &str) -> String {
        match self.level {
            Level::Environment => format!("{name} in the environment that the repository proposes"),
            level => format!("{name} in the settings of the {}", level.as_str()),
        }
    }
}

/// What happens to a session whose files a sandbox machine lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostWorkspace {
    /// Its turns fail until a person lets it continue with the files of its source.
    Ask,
    /// Its next turn continues with the files of its source.
    Restart,
}

impl LostWorkspace {
    pub const ALL: [Self; 2] = [Self::Ask, Self::Restart];

    /// The value in a file of settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Restart => "restart",
        }
    }
}

/// The files in which the subtasks of an agent work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubtaskFiles {
    /// Those of the session that gave the task.
    #[default]
    Share,
    /// A copy of those, for each subtask.
    Fork,
}

impl SubtaskFiles {
    pub const ALL: [Self; 2] = [Self::Share, Self::Fork];

    /// The value in a file of settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Fork => "fork",
        }
    }
}

impl Settings {
    /// The lists of rules that bind `agent`, one for each level that defines any, and the limits of each level; the strictest verdict
    /// counts ([`domain::policy::permission::strictest`]). Inside a list the agent's own rules come after those for every agent.
    pub fn rules(&self, agent: &str) -> Vec<Rules> {
        let own = self.agents.get(agent).map_or(&[][..], |agent| &agent.permission);
        let of = |lists: &[LevelRules], level| {
            let lists = lists.iter().filter(move |list| list.level == level && !list.is_limit);
            lists.flat_map(|list| list.rules.0.clone()).collect::<Vec<_>>()
        };
        let lists = Level::ALL.map(|level| Rules([of(&self.permission, level), of(own, level)].concat()));
        let limits = self.permission.iter().chain(own).filter(|list| list.is_limit);
        let limits = limits.map(|list| list.rules.clone());
        lists.into_iter().filter(|rules| !rules.0.is_empty()).chain(limits).collect()
    }
}

impl Settings {
    /// The lists of hosts that bind sessions. Empty: no host may be reached. A list of the repository alone allows nothing, because it only narrows.
    pub fn network(&self) -> &[LevelHosts] {
        let is_trusted = |hosts: &LevelHosts| hosts.level != Level::Repository;
        if self.network.iter().any(is_trusted) { &self.network } else { &[] }
    }

    /// The hosts that people may allow in a session that asks: the entries of all levels. A host must be in the list of each level.
    pub fn askable_hosts(&self) -> BTreeSet<&str> {
        self.network().iter().flat_map(|hosts| &hosts.ask).map(String::as_str).collect()
    }

    /// The lists of hosts as they decide about one. No host was allowed by people yet.
    pub fn allow_lists(&self) -> AllowLists {
        // The entries were checked when they were read; a list that cannot be read allows nothing.
        let list = |hosts: &LevelHosts| {
            let setting = hosts.setting("environment.network");
            let nothing = |_| AllowList::nothing(&setting);
            AllowList::parse(&setting, &hosts.allow, &hosts.ask).unwrap_or_else(nothing)
        };
        AllowLists::new(self.network().iter().map(list).collect())
    }

    /// Whether every level permits calls of `model`.
    pub fn allows(&self, model: &ModelRef) -> bool {
        self.models.iter().all(|level| level.allows(model))
    }

    /// The narrowest limits that any level sets for `model`.
    pub fn limit(&self, model: &ModelRef) -> Limit {
        self.models.iter().fold(Limit::default(), |least, level| least.and(level.limit(model)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelRules {
    pub level: Level,
    /// In order: the last rule that matches decides.
    pub rules: Rules,
    /// Whether the list binds by itself, whatever the other rules of its level say.
    pub is_limit: bool,
}

/// An agent, or the changes to a built-in one.
///
/// ```json
/// {"model":"anthropic/claude","prompt":"You review.","mode":"subagent","permission":{"edit":"deny"}}
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Agent {
    pub model: Option<ModelRef>,
    /// The variant of that model.
    pub variant: Option<String>,
    pub prompt: Option<String>,
    /// Its description for a model that chooses a subagent.
    pub description: Option<String>,
    /// Where it may be used.
    pub mode: Option<Mode>,
    /// The files in which its subtasks work; `None`: [`SubtaskFiles::Share`].
    pub files: Option<SubtaskFiles>,
    /// Whether it is hidden from people and models.
    pub hidden: Option<bool>,
    /// Model steps in one turn; the platform's own limit still applies.
    pub steps: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Its permissions, as in [`Settings::permission`].
    pub permission: Vec<LevelRules>,
    /// Whether it is switched off.
    pub disable: Option<bool>,
    /// The options that OpenCode would send to the model's provider.
    pub options: Options,
}

/// JSON in OpenCode's format, as it was written. It may hold secrets, so `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Options(pub Map<String, Value>);

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Options(***)")
    }
}

/// When and how the worker shortens the history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compaction {
    /// Whether the worker summarizes the history before it exceeds the context.
    pub auto: Option<bool>,
    /// Whether the worker clears old tool output.
    pub prune: Option<bool>,
    /// Tokens kept free for the answer.
    pub reserved: Option<u64>,
    /// The newest tokens, which a summary leaves unchanged.
    pub preserve_recent_tokens: Option<u64>,
    /// The newest turns, which a summary leaves unchanged.
    pub tail_turns: Option<u64>,
}

/// How much of a tool's output the model sees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolOutput {
    pub max_lines: Option<u64>,
    pub max_bytes: Option<u64>,
}
