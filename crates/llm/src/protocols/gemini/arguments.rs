//! Call arguments that Gemini streams in pieces: `{"jsonPath":"$.a[0].b","stringValue":"x","willContinue":true}`.

use crate::error::{Error, broken};
use serde_json::{Map, Value};

/// Nesting levels of tool arguments that are built from paths: the depth limit of JSON. A deeper path fails the turn.
const TOOL_ARGUMENTS_DEPTH_MAX: usize = 128;
/// Highest list position in tool arguments that are built from paths: a single number must not cost memory. A higher one fails the turn.
const TOOL_ARGUMENTS_ITEMS_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Arguments {
    value: Value,
    /// The path of the string that the next piece continues.
    growing: Option<String>,
    is_complete: bool,
}

impl Arguments {
    /// Adds pieces.
    ///
    /// # Errors
    /// `Protocol` for a path that is invalid or does not fit the arguments so far.
    pub(super) fn add(&mut self, pieces: &[Value]) -> Result<(), Error> {
        for piece in pieces {
            let path = piece.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
            let steps =
                steps(path).ok_or_else(|| broken("a path of a tool call's arguments is wrong", path))?;
            let slot = slot(&mut self.value, &steps)
                .ok_or_else(|| broken("a path of a tool call's arguments leads nowhere", path))?;
            let is_same = self.growing.as_deref() == Some(path);
            let text = piece.get("stringValue").and_then(Value::as_str);
            match (slot, text) {
                (Value::String(known), Some(more)) if is_same => known.push_str(more),
                (slot, Some(text)) => *slot = Value::String(text.to_owned()),
                (slot, None) => {
                    let other = ["numberValue", "boolValue"].iter().find_map(|key| piece.get(*key));
                    *slot = other.cloned().map_or(Value::Null, whole_number);
                }
            }
            let goes_on = piece.get("willContinue").and_then(Value::as_bool) == Some(true);
            self.growing = goes_on.then(|| path.to_owned());
        }
        Ok(())
    }

    /// Marks the arguments as complete.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// The arguments as JSON text. Incomplete arguments give cut-off text, so that the call never runs.
    pub(super) fn into_text(self) -> String {
        let value = if self.value.is_null() { Value::Object(Map::new()) } else { self.value };
        let mut text = value.to_string();
        if !self.is_complete {
            text.pop();
        }
        text
    }
}

/// Gemini sends all numbers as floating point. Converts integral ones to integers.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn whole_number(value: Value) -> Value {
    let float = value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15 && !value.is_i64());
    float.map_or(value, |float| Value::from(float as i64))
}

#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

/// The steps of `$.name`, `$['name']` and `$[0]` in any mixture.
fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() >= TOOL_ARGUMENTS_DEPTH_MAX {
            return None;
        }
        let (step, after) = step(rest)?;
        steps.push(step);
        rest = after;
    }
    Some(steps)
}

fn step(rest: &str) -> Option<(Step<'_>, &str)> {
    if let Some(name) = rest.strip_prefix('.') {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        return (end > 0).then(|| (Step::Key(&name[..end]), &name[end..]));
    }
    let inner = rest.strip_prefix('[')?;
    for quote in ['\'', '"'] {
        if let Some(name) = inner.strip_prefix(quote) {
            let end = name.find(quote)?;
            return Some((Step::Key(&name[..end]), name[end + 1..].strip_prefix(']')?));
        }
    }
    let (number, after) = inner.split_once(']')?;
    let item = number.parse::<usize>().ok().filter(|item| *item <= TOOL_ARGUMENTS_ITEMS_MAX)?;
    Some((Step::Item(item), after))
}

/// The value at `steps`, created if it does not exist; `None` if a value of another type is in the way.
fn slot<'a>(value: &'a mut Value, steps: &[Step<'_>]) -> Option<&'a mut Value> {
    let mut at = value;
    for step in steps {
        at = match step {
            Step::Key(name) => {
                if at.is_null() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut()?.entry(*name).or_insert(Value::Null)
            }
            Step::Item(item) => {
                if at.is_null() {
                    *at = Value::Array(Vec::new());
                }
                let list = at.as_array_mut()?;
                if list.len() <= *item {
                    list.resize(item + 1, Value::Null);
                }
                &mut list[*item]
            }
        };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_are_put_together_by_their_paths() {
        let mut arguments = Arguments::default();
        arguments
            .add(&[
                json!({"jsonPath":"$.text","stringValue":"Bos","willContinue":true}),
                json!({"jsonPath":"$.text","stringValue":"ton"}),
                json!({"jsonPath":"$.list[1]['a b']","numberValue":2.0}),
                json!({"jsonPath":"$.list[0]","boolValue":true}),
                json!({"jsonPath":"$.none","nullValue":"NULL_VALUE"}),
                json!({"jsonPath":"$.half","numberValue":0.5}),
            ])
            .unwrap();
        arguments.complete();
        let want = json!({"text":"Boston","list":[true,{"a b":2}],"none":null,"half":0.5});
        assert_eq!(serde_json::from_str::<Value>(&arguments.into_text()).unwrap(), want);
    }

    #[test]
    fn paths_that_lead_nowhere_are_refused_and_unfinished_arguments_are_no_json() {
        for path in ["", "a", "$a", "$.", "$[", "$[-1]", "$[99999999999]", "$['a", "$.x.y"] {
            let mut arguments = Arguments::default();
            arguments.add(&[json!({"jsonPath":"$.x","stringValue":"t"})]).unwrap();
            assert!(arguments.add(&[json!({"jsonPath":path,"stringValue":"t"})]).is_err(), "{path}");
        }
        let deep = format!("${}", ".a".repeat(TOOL_ARGUMENTS_DEPTH_MAX + 1));
        assert!(Arguments::default().add(&[json!({"jsonPath":deep,"stringValue":"t"})]).is_err());
        let mut arguments = Arguments::default();
        arguments.add(&[json!({"jsonPath":"$.x","stringValue":"t"})]).unwrap();
        assert_eq!(arguments.into_text(), "{\"x\":\"t\"");
    }
}
