//! Compares the states of one tool call.

use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A value in the expected shapes that any value matches.
const ANY: &str = "<any>";
/// Fields whose values are ids, times or names of models: only their types are compared.
const PRIVATE: [&str; 9] = [
    "part.id",
    "part.sessionID",
    "part.messageID",
    "part.callID",
    "time.start",
    "time.end",
    "metadata.model.modelID",
    "metadata.model.providerID",
    "attachments[].url",
];

/// A difference in one field of one state of a tool's calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Difference {
    tool: String,
    state: String,
    field: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Only OpenCode has it.
    Missing,
    /// Only Flotilla has it.
    Added,
    /// Both have it, with different values.
    Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    tools: Vec<String>,
    state: String,
    fields: Vec<String>,
    difference: Kind,
    #[serde(rename = "because")]
    _because: String,
}

impl Row {
    /// The differences that the row explains.
    pub(super) fn differences(&self) -> Vec<Difference> {
        let difference = |tool: &String, field: &String| Difference {
            tool: tool.clone(),
            state: self.state.clone(),
            field: field.clone(),
            kind: self.difference,
        };
        let pairs = self.tools.iter().flat_map(|tool| self.fields.iter().map(move |field| (tool, field)));
        pairs.map(|(tool, field)| difference(tool, field)).collect()
    }
}

/// The list of the differences that are meant.
pub(super) fn rows() -> Vec<Row> {
    serde_json::from_str(include_str!("differences.json")).expect("rows")
}

/// The values of one field in the states of one status.
#[derive(Default)]
struct Field {
    /// As JSON, without what differs between two runs.
    values: BTreeSet<String>,
    kinds: BTreeSet<&'static str>,
}

/// Compares the states that OpenCode and Flotilla show of the same call, in each status. While a call runs, its states are compared
/// as a whole, because how often they are shown depends on the clock.
pub(super) fn differences(theirs: &[Value], ours: &[Value]) -> BTreeSet<Difference> {
    let tool = theirs.last().unwrap()["tool"].as_str().unwrap();
    let mut found = BTreeSet::new();
    for status in ["pending", "running", "completed", "error"] {
        let (theirs, ours) = (fields_in(status, theirs), fields_in(status, ours));
        let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        let kind = |name: &String| match (theirs.get(name), ours.get(name)) {
            (Some(_), None) => Some(Kind::Missing),
            (None, Some(_)) => Some(Kind::Added),
            (Some(theirs), Some(ours)) => {
                let by_kind =
                    PRIVATE.contains(&name.as_str()) || status == "running" && name.starts_with("metadata.");
                let is_any = theirs.values.contains(&Value::from(ANY).to_string());
                let is_alike =
                    if by_kind { theirs.kinds == ours.kinds } else { is_any || theirs.values == ours.values };
                (!is_alike).then_some(Kind::Value)
            }
            (None, None) => None,
        };
        found.extend(names.into_iter().filter_map(|name| {
            let (tool, state, field) = (tool.to_owned(), status.to_owned(), name.clone());
            Some(Difference { tool, state, field, kind: kind(name)? })
        }));
    }
    found
}

/// The fields of all states with a status.
fn fields_in(status: &str, parts: &[Value]) -> BTreeMap<String, Field> {
    let mut fields = BTreeMap::new();
    for part in parts.iter().filter(|part| part["state"]["status"] == status) {
        let state = &part["state"];
        let is_listing = state["input"]["command"].as_str().is_some_and(|command| command.starts_with("ls"));
        for (name, value) in part.as_object().unwrap() {
            match name.as_str() {
                "state" => {}
                name => add(format!("part.{name}"), value, is_listing, &mut fields),
            }
        }
        for (name, value) in state.as_object().unwrap() {
            match name.as_str() {
                "status" => {}
                // The arguments are the same by construction; a call of an unknown tool shows them in another way.
                "input" => add_leaf(name, value, is_listing, &mut fields),
                name => add(name.to_owned(), value, is_listing, &mut fields),
            }
        }
    }
    fields
}

/// Adds the values below `name`: those of an object by their names, those of a list of objects together.
fn add(name: String, value: &Value, is_listing: bool, fields: &mut BTreeMap<String, Field>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (member, value) in members {
                add(format!("{name}.{member}"), value, is_listing, fields);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for item in items {
                add(format!("{name}[]"), item, is_listing, fields);
            }
        }
        _ => add_leaf(&name, value, is_listing, fields),
    }
}

fn add_leaf(name: &str, value: &Value, is_listing: bool, fields: &mut BTreeMap<String, Field>) {
    let field = fields.entry(name.to_owned()).or_default();
    field.kinds.insert(match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    });
    field.values.insert(match value {
        Value::String(text) if is_listing => Value::from(names_of(text)).to_string(),
        Value::String(text) => Value::from(without_ids(text)).to_string(),
        other => sorted(other).to_string(),
    });
}

/// A value whose objects are sorted by name: their order says nothing.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<&String, Value> =
                members.iter().map(|(name, value)| (name, sorted(value))).collect();
            members.into_iter().map(|(name, value)| (name.clone(), value)).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// The names in a listing of files, without what differs between two machines.
fn names_of(listing: &str) -> Vec<&str> {
    listing
        .lines()
        .filter(|line| !line.starts_with("total"))
        .filter_map(|line| line.split(' ').next_back())
        .collect()
}

/// A text without the parts that differ between two runs: ids, and the answer of a child's model.
fn without_ids(text: &str) -> String {
    let (head, rest) = text.split_once("<task_result>").unwrap_or((text, ""));
    let tail = rest.split_once("</task_result>").map_or(rest, |(_, tail)| tail);
    let words = format!("{head}{tail}");
    let mut plain = String::new();
    let mut left = words.as_str();
    while let Some(at) = ["ses_", "msg_", "prt_"].iter().filter_map(|prefix| left.find(prefix)).min() {
        let id = &left[at + 4..];
        let end = id.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(id.len());
        plain.push_str(&left[..at + 4]);
        left = &id[end..];
    }
    plain + left
}

#[test]
fn differences_of_states_are_found_by_field() {
    let part = |state: Value| serde_json::json!({"id": "prt_1", "tool": "x", "state": state});
    let found = |theirs: Value, ours: Value| {
        let found = differences(&[part(theirs)], &[part(ours)]).into_iter();
        found.map(|one| format!("{} {} {:?}", one.state, one.field, one.kind)).collect::<Vec<_>>()
    };
    let state = |metadata: Value| serde_json::json!({"status": "completed", "metadata": metadata});
    for (theirs, ours, want) in [
        (serde_json::json!({"a": 1}), serde_json::json!({"a": 1}), &[][..]),
        (serde_json::json!({"a": 1}), serde_json::json!({"a": 2}), &["completed metadata.a Value"]),
        (serde_json::json!({"a": "<any>"}), serde_json::json!({"a": "b"}), &[]),
        (serde_json::json!({"a": "ses_1 x"}), serde_json::json!({"a": "ses_2 x"}), &[]),
        (
            serde_json::json!({"a": [{"b": 1}]}),
            serde_json::json!({"a": [{"c": 1}]}),
            &["completed metadata.a[].b Missing", "completed metadata.a[].c Added"],
        ),
    ] {
        assert_eq!(found(state(theirs), state(ours)), want);
    }
    let (running, done) =
        (serde_json::json!({"status": "running"}), serde_json::json!({"status": "error", "error": "e"}));
    assert_eq!(
        found(running, done),
        [
            "error error Added",
            "error part.id Added",
            "error part.tool Added",
            "running part.id Missing",
            "running part.tool Missing",
        ]
    );
}
