//! The built-in agents: who answers, and what it may do.

use crate::permission::{Rule, Rules, Verdict};
use serde::{Deserialize, Serialize};

/// Sums up a conversation that becomes too long.
pub const COMPACTION: &str = "compaction";
/// Reserved, as in OpenCode: says what a prompt changed.
pub const SUMMARY: &str = "summary";
/// Names sessions.
pub const TITLE: &str = "title";
/// Agents that work for the service: they have no tools and answer no prompt and no subtask.
const HIDDEN: [&str; 3] = [COMPACTION, SUMMARY, TITLE];

/// Whether an agent works for the service, whatever settings say of it.
pub fn is_hidden(name: &str) -> bool {
    HIDDEN.contains(&name)
}

/// Who answers a prompt or a subtask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// Does everything; answers when no agent is named.
    Build,
    /// Works out a plan with a person and changes nothing.
    Plan,
    /// A subtask of any kind.
    General,
    /// A subtask that only looks.
    Explore,
}

impl Agent {
    /// Every agent.
    pub const ALL: [Self; 4] = [Self::Build, Self::Plan, Self::General, Self::Explore];
    /// Those that a subtask may name.
    pub const SUBAGENTS: [Self; 2] = [Self::General, Self::Explore];

    /// Its name in prompts, messages and tool calls.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Plan => "plan",
            Self::General => "general",
            Self::Explore => "explore",
        }
    }

    /// Reads [`Agent::as_str`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.as_str() == name)
    }

    /// What a model is told that chooses a subagent.
    pub fn description(self) -> &'static str {
        match self {
            Self::Build => "does everything",
            Self::Plan => "makes a plan and changes nothing",
            Self::General => "works on a task of several steps, in the same files",
            Self::Explore => "finds out facts about the code and changes nothing",
        }
    }

    /// What it may do.
    pub fn rules(self) -> Rules {
        let own = match self {
            Self::Build => vec![],
            // Whoever would do the work for it may not be asked either.
            Self::Plan => {
                let general = Self::General.as_str().to_owned();
                let work = Rule { pattern: general, ..Rule::of("task", Verdict::Deny) };
                vec![Rule::of("edit", Verdict::Deny), work]
            }
            // The list of things to do belongs to whoever gave the task.
            Self::General => vec![Rule::of("todowrite", Verdict::Deny)],
            Self::Explore => {
                let looks =
                    ["bash", "glob", "grep", "list", "read"].map(|tool| Rule::of(tool, Verdict::Allow));
                std::iter::once(Rule::of("*", Verdict::Deny)).chain(looks).collect()
            }
        };
        Rules(own.into_iter().chain(secrets()).collect())
    }
}

/// Where an agent may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// For subtasks only.
    Subagent,
    /// For prompts only.
    Primary,
    /// For both.
    All,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Subagent, Self::Primary, Self::All];

    /// Its name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Subagent => "subagent",
            Self::Primary => "primary",
            Self::All => "all",
        }
    }
}

/// Files that often hold secrets are read only when a person allows it.
fn secrets() -> [Rule; 3] {
    [("*.env", Verdict::Ask), ("*.env.*", Verdict::Ask), ("*.env.example", Verdict::Allow)].map(
        |(pattern, action)| Rule {
            permission: "read".to_owned(),
            pattern: pattern.to_owned(),
            action,
            is_approval: false,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_looks_changes_nothing() {
        let rules = Agent::Explore.rules();
        for tool in ["edit", "write", "task", "todowrite", "question"] {
            assert!(rules.hides(tool), "{tool}");
        }
        assert!(!rules.hides("read"));
    }

    #[test]
    fn who_plans_edits_nothing_and_gives_nobody_the_work() {
        let rules = Agent::Plan.rules();
        assert!(rules.hides("edit") && !rules.hides("bash") && !rules.hides("task"));
        for (agent, want) in [("general", Verdict::Deny), ("explore", Verdict::Allow)] {
            assert_eq!(rules.verdict("task", agent), want, "{agent}");
        }
        assert!(!Agent::SUBAGENTS.contains(&Agent::Plan));
    }

    #[test]
    fn secrets_are_asked_for() {
        for agent in Agent::ALL {
            let verdict = |path| agent.rules().verdict("read", path);
            assert_eq!(verdict("/workspace/.env"), Verdict::Ask);
            assert_eq!(verdict("/workspace/a/prod.env.local"), Verdict::Ask);
            assert_eq!(verdict("/workspace/.env.example"), Verdict::Allow);
            assert_eq!(verdict("/workspace/environment.rs"), Verdict::Allow);
        }
    }

    #[test]
    fn names_are_read_back() {
        for agent in Agent::ALL {
            assert_eq!(Agent::parse(agent.as_str()), Some(agent));
        }
        assert_eq!(Agent::parse("root"), None);
        for hidden in HIDDEN {
            assert!(is_hidden(hidden) && Agent::parse(hidden).is_none(), "{hidden}");
        }
        assert!(!is_hidden("build"));
    }
}
