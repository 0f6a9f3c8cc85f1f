//! The built-in agents and their permissions.

use crate::policy::permission::{Rule, Rules, Verdict};
use serde::{Deserialize, Serialize};

/// Summarizes a conversation that becomes too long.
pub const COMPACTION: &str = "compaction";
/// Reserved, as in OpenCode: describes the changes of a prompt.
pub const SUMMARY: &str = "summary";
/// Names sessions.
pub const TITLE: &str = "title";
/// Agents that work for the service. They have no tools and answer no prompts and no subtasks.
const HIDDEN: [&str; 3] = [COMPACTION, SUMMARY, TITLE];

/// Whether an agent works for the service. Settings cannot change this.
pub fn is_hidden(name: &str) -> bool {
    HIDDEN.contains(&name)
}

/// A built-in agent that answers prompts or subtasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// Does everything. The default agent.
    Build,
    /// Makes a plan with a person and changes nothing.
    Plan,
    /// Works on a subtask of any kind.
    General,
    /// Works on a subtask that only reads.
    Explore,
}

impl Agent {
    pub const ALL: [Self; 4] = [Self::Build, Self::Plan, Self::General, Self::Explore];
    /// The agents that a subtask may name.
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

    /// The description for a model that chooses a subagent.
    pub fn description(self) -> &'static str {
        match self {
            Self::Build => "does everything",
            Self::Plan => "makes a plan and changes nothing",
            Self::General => "works on a task of several steps",
            Self::Explore => "finds out facts about the code and changes nothing",
        }
    }

    pub fn rules(self) -> Rules {
        let own = match self {
            Self::Build => vec![],
            // It must not delegate the work either.
            Self::Plan => {
                let general = Self::General.as_str().to_owned();
                let work = Rule { pattern: general, ..Rule::of("task", Verdict::Deny) };
                vec![Rule::of("edit", Verdict::Deny), work]
            }
            // The to-do list, and the person, belong to the agent that gave the task.
            Self::General => ["question", "todowrite"].map(|tool| Rule::of(tool, Verdict::Deny)).to_vec(),
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

/// Files that often hold secrets need a person's permission to be read.
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
    fn explore_changes_nothing() {
        let rules = Agent::Explore.rules();
        for tool in ["edit", "write", "task", "todowrite", "question"] {
            assert!(rules.hides(tool), "{tool}");
        }
        assert!(!rules.hides("read"));
    }

    #[test]
    fn a_subagent_asks_no_questions() {
        for agent in Agent::ALL {
            assert_eq!(agent.rules().hides("question"), Agent::SUBAGENTS.contains(&agent), "{agent:?}");
        }
    }

    #[test]
    fn plan_edits_nothing_and_delegates_nothing() {
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
