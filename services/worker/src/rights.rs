//! What a loop may do: the rules of the agent that answers, of its session and of every ancestor. The strictest counts.

use crate::tools::Tool;
use domain::{
    agent::Agent,
    permission::{Rule, Rules, Verdict, strictest},
};
use serde_json::Value;

/// The rules of one session beside those of its agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rights(Vec<Rules>);

impl Rights {
    pub(crate) fn new(lists: Vec<Rules>) -> Self {
        Self(lists)
    }

    /// Whether a call may run, must be asked for, or must not run.
    pub(crate) fn verdict(&self, agent: &str, tool: Tool, input: &Value) -> Verdict {
        let own = rules_of(agent);
        let lists: Vec<&Rules> = std::iter::once(&own).chain(&self.0).collect();
        strictest(&lists, tool.name(), &tool.subject(input))
    }

    /// Whether the model need not know a tool.
    pub(crate) fn hides(&self, agent: &str, name: &str) -> bool {
        rules_of(agent).hides(name) || self.0.iter().any(|rules| rules.hides(name))
    }

    /// The rules of a child beside those of its own agent: everything that binds this session.
    pub(crate) fn of_child(&self, agent: &str) -> Vec<Rules> {
        std::iter::once(rules_of(agent)).chain(self.0.clone()).filter(|rules| !rules.0.is_empty()).collect()
    }

    /// Takes over an answer "always".
    pub(crate) fn allow(&mut self, permission: &str, patterns: &[String]) {
        for rules in &mut self.0 {
            rules.0.extend(patterns.iter().map(|pattern| Rule {
                permission: permission.to_owned(),
                pattern: pattern.clone(),
                action: Verdict::Allow,
            }));
        }
    }
}

/// The rules of an agent; one that this version does not know may do nothing.
fn rules_of(agent: &str) -> Rules {
    Agent::parse(agent).map_or_else(|| Rules(vec![Rule::of("*", Verdict::Deny)]), Agent::rules)
}
