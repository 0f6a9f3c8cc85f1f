//! Explains settings: every effective value, with its origin.

use crate::{
    merge::MergedSettings,
    node::{Content, KeyPath, Node, Origin, Step},
};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub path: KeyPath,
    /// The value, with references as they were written and without secrets.
    pub value: Value,
    pub origin: Origin,
}

impl MergedSettings {
    /// Returns every effective value: first the values that the last file decides, then the restrictions, level by level. Omits values
    /// that a later file replaced.
    pub fn explain(&self) -> Vec<Row> {
        let mut rows = vec![];
        walk(&self.tree, &mut KeyPath::default(), &mut rows);
        for level in &self.rules {
            walk(level, &mut KeyPath::default(), &mut rows);
        }
        rows
    }
}

fn walk(node: &Node, path: &mut KeyPath, rows: &mut Vec<Row>) {
    match &node.value {
        Content::List(items) => {
            for (at, item) in items.iter().enumerate() {
                path.0.push(Step::Item(at));
                walk(item, path, rows);
                path.0.pop();
            }
        }
        Content::Map(entries) => {
            for entry in entries {
                path.0.push(Step::Key(entry.key.clone()));
                walk(&entry.node, path, rows);
                path.0.pop();
            }
        }
        Content::Null | Content::Bool(_) | Content::Number(_) | Content::Text { .. } => {
            let is_secret = matches!(&node.value, Content::Text { written: None, .. }) && holds_secrets(path);
            let value = if is_secret { Value::from("***") } else { node.to_json_as_written() };
            rows.push(Row { path: path.clone(), value, origin: node.origin.clone() });
        }
    }
}

/// Whether a string at `path` may be a secret: headers and keys in the options that agents send to providers.
fn holds_secrets(path: &KeyPath) -> bool {
    let keys = || {
        path.0.iter().filter_map(|step| match step {
            Step::Key(key) => Some(key.to_ascii_lowercase()),
            Step::Item(_) => None,
        })
    };
    let is_rule = || keys().nth(2).is_some_and(|key| ["permission", "tools"].contains(&key.as_str()));
    let secret = ["apikey", "api_key", "token", "secret", "password", "authorization", "credential"];
    keys().next().is_some_and(|first| first == "agent" && !is_rule())
        && keys().skip(2).any(|key| key == "headers" || secret.iter().any(|word| key.contains(word)))
}
