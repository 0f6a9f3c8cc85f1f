//! What a mistake in a file of a repository takes along: the part that has it, and nothing else, unless a restriction would be lost.

use crate::{
    document::Document,
    meaning::{
        modes::{AGENT, MODE},
        providers,
        rules::{AGENT_RULES, ROOT_RULES, may_restrict},
    },
    node::{Content, KeyPath, Member, Node, Step},
};
use domain::policy::agent::Agent;
use std::sync::Arc;

const DISABLE: &str = "disable";

/// What has to go because of a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loss {
    /// The value with the mistake.
    Part,
    /// The agent: it would do more than the person who wrote its restrictions wants.
    Agent(Arc<str>),
    /// All values of the file but the restrictions.
    File,
    /// Everything: nothing may run, because it is unclear what may.
    All,
}

impl Loss {
    /// What a mistake at `path` takes along.
    pub(super) fn of(path: &KeyPath) -> Self {
        let keys: Vec<&Arc<str>> = path
            .0
            .iter()
            .filter_map(|step| match step {
                Step::Key(key) => Some(key),
                Step::Item(_) => None,
            })
            .collect();
        match *keys.as_slice() {
            [] => Self::File,
            [root] if &**root == AGENT => Self::File,
            [root, name, key, ..] if &**root == AGENT => match restricts_agent(key) {
                false => Self::Part,
                true => Self::without_agent(name),
            },
            [root, _, key, ..] if &**root == "provider" && !providers::PROVIDER.contains(&&**key) => {
                Self::Part
            }
            [root, ..] if restricts(root) => Self::All,
            [_, ..] => Self::Part,
        }
    }

    /// What is left out if it is unclear what an agent may do.
    pub(super) fn without_agent(name: &Arc<str>) -> Self {
        // A built-in agent exists whatever the files say.
        if Agent::parse(name).is_some() { Self::All } else { Self::Agent(Arc::clone(name)) }
    }

    /// The end of the sentence about the mistake.
    pub(super) fn consequence(&self) -> String {
        match self {
            Self::Part | Self::All => String::new(),
            Self::Agent(name) => {
                format!("; the agent {name} is not available, because its restrictions are unclear")
            }
            Self::File => "; of this file, only the restrictions apply".to_owned(),
        }
    }
}

fn restricts_agent(key: &str) -> bool {
    AGENT_RULES.contains(&key) || key == DISABLE || may_restrict(key)
}

/// Whether a key of the root restricts something, or may be meant to.
fn restricts(key: &str) -> bool {
    let other =
        ["disabled_providers", "enabled_providers", "environment", MODE, "provider", "subagent_depth"];
    ROOT_RULES.contains(&key) || other.contains(&key) || may_restrict(key)
}

impl Document {
    /// Removes the value at `path`, if it is there.
    pub(super) fn remove(&mut self, path: &KeyPath) {
        remove(&mut self.root, &path.0);
    }

    /// Replaces everything about an agent by its end.
    pub(super) fn disable_agent(&mut self, name: &Arc<str>) {
        let origin = self.root.origin.clone();
        let flag = Node { origin: origin.clone(), value: Content::Bool(true) };
        let of = |key: &str, node: Node| Node {
            origin: origin.clone(),
            value: Content::Map(vec![Member { key: Arc::from(key), origin: origin.clone(), node }]),
        };
        let (agents, disabled) = (Step::Key(Arc::from(AGENT)), Step::Key(Arc::clone(name)));
        remove(&mut self.root, &[agents, disabled]);
        let over = of(AGENT, of(name, of(DISABLE, flag)));
        if let (Content::Map(members), Content::Map(more)) = (&mut self.root.value, over.value) {
            crate::overlay::overlay_members(members, more);
        }
    }
}

fn remove(node: &mut Node, path: &[Step]) {
    let Some((first, rest)) = path.split_first() else { return };
    match (&mut node.value, first) {
        (Content::Map(members), Step::Key(key)) => match members.iter().position(|member| member.key == *key)
        {
            Some(at) if rest.is_empty() => drop(members.remove(at)),
            Some(at) => remove(&mut members[at].node, rest),
            None => {}
        },
        (Content::List(items), Step::Item(at)) if rest.is_empty() && *at < items.len() => {
            items.remove(*at);
        }
        (Content::List(items), Step::Item(at)) => {
            if let Some(item) = items.get_mut(*at) {
                remove(item, rest);
            }
        }
        _ => {}
    }
}
