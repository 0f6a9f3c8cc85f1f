//! An environment while it is read from a file of another tool.

use crate::node::{Content, Member, Node, Origin};
use domain::{
    session::environment::{is_own_variable, is_variable_name},
    text,
};
use std::sync::Arc;

/// Sentences about what has no effect. Further ones are left out.
const UNUSED_MAX: usize = 50;
/// Bytes of one of them. The rest is cut.
const UNUSED_BYTES_MAX: usize = 200;

const ENV: &str = "env";
const SECRETS: &str = "secrets";

/// An environment, and what else its file has.
pub(super) struct ProposalBuilder {
    /// The value of `environment` in settings.
    pub(super) environment: Node,
    /// Sentences about what has no effect.
    pub(super) unused: Vec<String>,
}

impl ProposalBuilder {
    pub(super) fn new(origin: Origin) -> Self {
        Self { environment: Node { origin, value: Content::Map(vec![]) }, unused: vec![] }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.environment.value, Content::Map(entries) if entries.is_empty())
    }

    /// Notes that something has no effect.
    pub(super) fn leave_out(&mut self, sentence: &str) {
        if self.unused.len() < UNUSED_MAX {
            self.unused.push(text::head(sentence, UNUSED_BYTES_MAX).to_owned());
        } else if self.unused.len() == UNUSED_MAX {
            self.unused.push("and more".to_owned());
        }
    }

    /// Sets a value, which keeps its position.
    pub(super) fn set(&mut self, key: &str, node: Node) {
        let entry = Member { key: Arc::from(key), origin: node.origin.clone(), node };
        if let Content::Map(entries) = &mut self.environment.value {
            entries.retain(|other| &*other.key != key);
            entries.push(entry);
        }
    }

    /// Appends lines to a script.
    pub(super) fn add_script(&mut self, key: &str, origin: &Origin, text: &str) {
        let earlier = members(&self.environment).iter().find(|entry| &*entry.key == key);
        let script = match earlier.and_then(|entry| entry.node.as_text()) {
            Some(earlier) => format!("{earlier}\n{text}"),
            None => text.to_owned(),
        };
        self.set(key, Node::text(origin.clone(), script));
    }

    /// Sets a variable. One that the sandbox sets itself has no effect.
    pub(super) fn set_variable(&mut self, place: &str, name: &str, value: Node) {
        if !is_variable_name(name) || is_own_variable(name) {
            return self.leave_out(&format!("{place}.{name}: the sandbox sets this variable itself"));
        }
        self.set_member(ENV, name, value);
        self.remove_member(SECRETS, name);
    }

    /// Whether a variable has another value than this secret.
    pub(super) fn has_other(&self, name: &str, secret: &str) -> bool {
        let secrets = self.members_of(SECRETS);
        let other = |entry: &Member| &*entry.key == name && entry.node.as_text() != Some(secret);
        self.members_of(ENV).iter().any(|entry| &*entry.key == name) || secrets.iter().any(other)
    }

    /// Sets a variable of the scripts whose value is a secret: the text of the node is the name of the secret.
    pub(super) fn set_secret(&mut self, place: &str, name: &str, secret: Node) {
        if !is_variable_name(name) || is_own_variable(name) {
            return self.leave_out(&format!("{place}.{name}: the sandbox sets this variable itself"));
        }
        self.set_member(SECRETS, name, secret);
        self.remove_member(ENV, name);
    }

    fn set_member(&mut self, key: &str, name: &str, value: Node) {
        let mut entries = self.members_of(key);
        entries.retain(|entry| &*entry.key != name);
        let origin = value.origin.clone();
        entries.push(Member { key: Arc::from(name), origin: origin.clone(), node: value });
        self.set(key, Node { origin, value: Content::Map(entries) });
    }

    fn remove_member(&mut self, key: &str, name: &str) {
        let mut entries = self.members_of(key);
        if let Some(at) = entries.iter().position(|entry| &*entry.key == name) {
            let origin = entries.remove(at).origin;
            self.set(key, Node { origin, value: Content::Map(entries) });
        }
    }

    fn members_of(&self, key: &str) -> Vec<Member> {
        let object = members(&self.environment).iter().find(|entry| &*entry.key == key);
        object.map(|entry| members(&entry.node).to_vec()).unwrap_or_default()
    }
}

/// The members of an object; none of another value.
pub(super) fn members(node: &Node) -> &[Member] {
    if let Content::Map(entries) = &node.value { entries } else { &[] }
}

/// The items of a list; none of another value.
pub(super) fn items(node: &Node) -> &[Node] {
    if let Content::List(items) = &node.value { items } else { &[] }
}

/// A text, a number or a truth value as the text of a variable.
pub(super) fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Content::Text { text, .. } => Some(text.clone()),
        Content::Bool(_) | Content::Number(_) => Some(node.to_json().to_string()),
        Content::Null | Content::List(_) | Content::Map(_) => None,
    }
}
