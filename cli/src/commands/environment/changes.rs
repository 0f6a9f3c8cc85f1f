//! The differences between two environments, value by value, for an admin who is about to allow one of them.

use serde_json::{Value, json};
use std::{collections::BTreeSet, iter};

#[derive(Debug, PartialEq)]
pub(super) struct Change {
    /// Its keys, such as `network.allow`.
    path: String,
    /// `None`: it is new.
    before: Option<Value>,
    /// `None`: it is gone.
    after: Option<Value>,
}

/// The values in which two environments differ, by their keys. Without an environment before, everything is new.
pub(super) fn find(before: Option<&Value>, after: &Value) -> Vec<Change> {
    let mut changes = vec![];
    walk("", before, Some(after), &mut changes);
    changes
}

fn walk(path: &str, before: Option<&Value>, after: Option<&Value>, changes: &mut Vec<Change>) {
    let is_leaf = |value: Option<&Value>| value.is_some_and(|value| !value.is_object());
    if is_leaf(before) || is_leaf(after) {
        if before != after {
            changes.push(Change { path: path.to_owned(), before: before.cloned(), after: after.cloned() });
        }
        return;
    }
    let both = [before, after].into_iter().flatten().filter_map(Value::as_object);
    let keys: BTreeSet<&String> = both.flat_map(|members| members.keys()).collect();
    for key in keys {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let member = |value: Option<&Value>| value.and_then(|value| value.get(key)).cloned();
        walk(&below, member(before).as_ref(), member(after).as_ref(), changes);
    }
}

impl Change {
    /// The change for people: what goes with `-`, what comes with `+`. Of a long script only the lines that differ.
    pub(super) fn lines(&self) -> Vec<String> {
        let (before, after) = (texts(self.before.as_ref()), texts(self.after.as_ref()));
        let is_list = [&self.before, &self.after].into_iter().flatten().any(Value::is_array);
        let (gone, fresh) = if is_list {
            (without(&before, &after), without(&after, &before))
        } else {
            differing(before, after)
        };
        let mut lines = vec![format!("{}:", self.path)];
        if gone.is_empty() && fresh.is_empty() {
            lines.push("  (only the order or white space differs)".to_owned());
        }
        lines.extend(gone.iter().map(|line| format!("  - {line}")));
        lines.extend(fresh.iter().map(|line| format!("  + {line}")));
        lines
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"path": self.path, "before": self.before, "after": self.after})
    }
}

/// A value as lines: those of a text, the entries of a list.
fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        None => vec![],
        Some(Value::String(text)) => text.lines().map(str::to_owned).collect(),
        Some(Value::Array(entries)) => {
            let text = |entry: &Value| entry.as_str().map_or_else(|| entry.to_string(), str::to_owned);
            entries.iter().map(text).collect()
        }
        Some(other) => vec![other.to_string()],
    }
}

/// The entries that the other list does not have.
fn without(entries: &[String], other: &[String]) -> Vec<String> {
    entries.iter().filter(|entry| !other.contains(entry)).cloned().collect()
}

/// The lines between the first and the last difference of two texts.
fn differing(mut before: Vec<String>, mut after: Vec<String>) -> (Vec<String>, Vec<String>) {
    let same = iter::zip(&before, &after).take_while(|(old, new)| old == new).count();
    before.drain(..same);
    after.drain(..same);
    let same = iter::zip(before.iter().rev(), after.iter().rev()).take_while(|(old, new)| old == new).count();
    before.truncate(before.len() - same);
    after.truncate(after.len() - same);
    (before, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_told_and_nothing_else() {
        let before = json!({
            "image": "dev:1", "install": "set -e\nnpm ci\nnpm run build\n", "env": {"CI": "1", "A": "1"},
            "network": {"allow": ["preset:npm", "b.dev"], "setup": ["preset:debian"]}, "start": "redis-server",
        });
        let after = json!({
            "image": "dev:2", "install": "set -e\npnpm i\nnpm run build\n", "env": {"CI": "1"}, "allow_ptrace": true,
            "network": {"allow": ["c.dev", "preset:npm"], "setup": ["preset:debian"]}, "start": "redis-server",
        });
        let lines: Vec<String> = find(Some(&before), &after).iter().flat_map(Change::lines).collect();
        assert_eq!(
            lines,
            [
                "allow_ptrace:",
                "  + true",
                "env.A:",
                "  - 1",
                "image:",
                "  - dev:1",
                "  + dev:2",
                "install:",
                "  - npm ci",
                "  + pnpm i",
                "network.allow:",
                "  - b.dev",
                "  + c.dev",
            ]
        );
        assert_eq!(find(Some(&after), &after), []);
        let all: Vec<Value> = find(None, &json!({"env": {"CI": "1"}})).iter().map(Change::to_json).collect();
        assert_eq!(all, [json!({"path": "env.CI", "before": null, "after": "1"})]);
        let other = find(
            Some(&json!({"network": {"allow": ["a", "b"]}})),
            &json!({"network": {"allow": ["b", "a"]}}),
        );
        assert_eq!(other[0].lines()[1], "  (only the order or white space differs)");
    }
}
