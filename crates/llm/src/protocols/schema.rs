//! Reduces the schemas of tool arguments to the dialect of a provider. The worker validates arguments against the full
//! schema, so a reduced schema only makes the model guess more.

use serde_json::{Map, Value, json};
use std::cell::Cell;

/// Nesting levels of a tool's schema that are translated for a provider with its own dialect; deeper levels accept
/// any value.
const TOOL_SCHEMA_DEPTH_MAX: usize = 32;
/// Schemas inside a tool's schema that are translated for such a provider, with references resolved; the remaining ones
/// accept any value.
const TOOL_SCHEMA_NODES_MAX: usize = 2_000;

/// Keys that Gemini's dialect shares with JSON Schema.
const GEMINI_KEYS: [&str; 9] = [
    "description",
    "title",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
];
/// Formats that Gemini's dialect supports.
const GEMINI_FORMATS: [&str; 6] = ["enum", "date-time", "int32", "int64", "float", "double"];

/// `schema` as an object schema without alternatives at the top level: Anthropic and OpenAI refuse any other form.
pub(crate) fn object(schema: &Value) -> Value {
    let mut object = schema.as_object().cloned().unwrap_or_default();
    let mut properties = object.remove("properties").and_then(into_object).unwrap_or_default();
    let mut required: Vec<Value> =
        object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for key in ["allOf", "anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = object.remove(key) else { continue };
        for branch in branches {
            for (name, property) in branch.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                properties.entry(name.clone()).or_insert_with(|| property.clone());
            }
            // One alternative may require properties that the others forbid.
            if key == "allOf" {
                required
                    .extend(branch.get("required").and_then(Value::as_array).into_iter().flatten().cloned());
            }
        }
    }
    for key in ["enum", "const", "not"] {
        object.remove(key);
    }
    object.insert("type".to_owned(), json!("object"));
    object.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        object.insert("required".to_owned(), Value::Array(required));
    }
    Value::Object(object)
}

/// `schema` for Moonshot, which refuses siblings of a `$ref` and lists of item schemas.
pub(crate) fn moonshot(schema: &Value) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(moonshot).collect(),
        Value::Object(object) => match object.get("$ref") {
            Some(target) if target.is_string() => json!({"$ref": target}),
            _ => {
                let one = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                    ("items", Value::Array(items)) => {
                        (key.clone(), items.first().map_or_else(|| json!({}), moonshot))
                    }
                    _ => (key.clone(), moonshot(value)),
                };
                Value::Object(object.iter().map(one).collect())
            }
        },
        _ => schema.clone(),
    }
}

/// `schema` in Gemini's dialect, a subset of OpenAPI's: one type each, enums of strings only, items for every array, no
/// references. `None` for a tool without arguments, because Gemini refuses an object without properties.
pub(crate) fn gemini(schema: &Value) -> Option<Value> {
    let schema = object(schema);
    let lowered = Gemini { root: &schema, nodes: Cell::new(0) }.lower(&schema, 0);
    let has_properties = lowered.get("properties").is_some();
    has_properties.then_some(lowered)
}

struct Gemini<'a> {
    /// The schema that references resolve against.
    root: &'a Value,
    /// The number of schemas converted so far. References can make a small schema large.
    nodes: Cell<usize>,
}

impl Gemini<'_> {
    fn lower(&self, schema: &Value, depth: usize) -> Value {
        self.nodes.set(self.nodes.get() + 1);
        let is_small = depth < TOOL_SCHEMA_DEPTH_MAX && self.nodes.get() <= TOOL_SCHEMA_NODES_MAX;
        let Some(object) = schema.as_object().filter(|_| is_small) else {
            // `true` allows anything. So does a schema that is too deep or too large here: a string can hold any value.
            return json!({"type": "string"});
        };
        if let Some(target) = object.get("$ref").and_then(Value::as_str) {
            let target = target.strip_prefix('#').and_then(|path| self.root.pointer(path));
            return target.map_or_else(|| json!({"type": "string"}), |target| self.lower(target, depth + 1));
        }
        if let Some(Value::Array(branches)) = object.get("allOf") {
            return self.lower(&merged(object, branches), depth + 1);
        }
        let mut lowered = Map::new();
        for key in GEMINI_KEYS {
            if let Some(value) = object.get(key).filter(|value| value.is_string() || value.is_number()) {
                lowered.insert(key.to_owned(), value.clone());
            }
        }
        let format = object.get("format").and_then(Value::as_str);
        if let Some(format) = format.filter(|format| GEMINI_FORMATS.contains(format)) {
            lowered.insert("format".to_owned(), json!(format));
        }
        let branches = ["anyOf", "oneOf"].iter().find_map(|key| object.get(*key)?.as_array());
        match branches {
            Some(branches) => self.alternatives(branches, &mut lowered, depth),
            None => self.typed(object, &mut lowered, depth),
        }
        Value::Object(lowered)
    }

    fn alternatives(&self, branches: &[Value], lowered: &mut Map<String, Value>, depth: usize) {
        let is_null = |branch: &&Value| branch["type"] == "null";
        let others: Vec<&Value> = branches.iter().filter(|branch| !is_null(branch)).collect();
        if others.len() < branches.len() {
            lowered.insert("nullable".to_owned(), json!(true));
        }
        match others.as_slice() {
            [] => {
                lowered.insert("type".to_owned(), json!("string"));
            }
            [only] => {
                let only = self.lower(only, depth + 1);
                lowered.extend(into_object(only).into_iter().flatten());
            }
            several => {
                let several: Vec<Value> =
                    several.iter().map(|branch| self.lower(branch, depth + 1)).collect();
                lowered.insert("anyOf".to_owned(), json!(several));
            }
        }
    }

    fn typed(&self, object: &Map<String, Value>, lowered: &mut Map<String, Value>, depth: usize) {
        let types: Vec<&str> = match object.get("type") {
            Some(Value::String(kind)) => vec![kind.as_str()],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            Some(_) | None => Vec::new(),
        };
        if types.contains(&"null") {
            lowered.insert("nullable".to_owned(), json!(true));
        }
        let types: Vec<&str> = types.into_iter().filter(|kind| *kind != "null").collect();
        if types.len() > 1 {
            let alone = |kind: &&str| {
                let mut alone = object.clone();
                alone.insert("type".to_owned(), json!(kind));
                self.lower(&Value::Object(alone), depth + 1)
            };
            lowered.insert("anyOf".to_owned(), types.iter().map(alone).collect());
            return;
        }
        let choices = match (object.get("enum"), object.get("const")) {
            (Some(Value::Array(choices)), _) => choices.iter().filter_map(word).collect(),
            (_, Some(only)) => word(only).into_iter().collect(),
            _ => Vec::new(),
        };
        if !choices.is_empty() {
            lowered.insert("type".to_owned(), json!("string"));
            lowered.insert("enum".to_owned(), json!(choices));
            // Numeric bounds do not apply to the strings that replace the numbers.
            ["minimum", "maximum", "format"].iter().for_each(|key| drop(lowered.remove(*key)));
            return;
        }
        let guessed = if object.contains_key("properties") {
            "object"
        } else if object.contains_key("items") {
            "array"
        } else {
            "string"
        };
        let kind = types.first().copied().unwrap_or(guessed);
        lowered.insert("type".to_owned(), json!(kind));
        match kind {
            "object" => self.properties(object, lowered, depth),
            "array" => {
                let items = object.get("items").filter(|items| items.is_object());
                let items =
                    items.map_or_else(|| json!({"type": "string"}), |items| self.lower(items, depth + 1));
                lowered.insert("items".to_owned(), items);
            }
            _ => {}
        }
    }

    fn properties(&self, object: &Map<String, Value>, lowered: &mut Map<String, Value>, depth: usize) {
        let properties = object.get("properties").and_then(Value::as_object);
        let lower = |(name, schema): (&String, &Value)| (name.clone(), self.lower(schema, depth + 1));
        let properties: Map<String, Value> = properties.into_iter().flatten().map(lower).collect();
        let required = object.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: Vec<&str> =
            required.filter_map(Value::as_str).filter(|name| properties.contains_key(*name)).collect();
        if !required.is_empty() {
            lowered.insert("required".to_owned(), json!(required));
        }
        if !properties.is_empty() {
            lowered.insert("properties".to_owned(), Value::Object(properties));
        }
    }
}

/// Merges all `branches` into one schema. Later keys win, except for properties, which are combined.
fn merged(object: &Map<String, Value>, branches: &[Value]) -> Value {
    let mut whole = object.clone();
    whole.remove("allOf");
    for branch in branches.iter().filter_map(Value::as_object) {
        for (key, value) in branch {
            match (whole.get_mut(key), value) {
                (Some(Value::Object(known)), Value::Object(more)) => known.extend(more.clone()),
                (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                    known.extend(more.iter().cloned());
                }
                _ => drop(whole.insert(key.clone(), value.clone())),
            }
        }
    }
    Value::Object(whole)
}

fn word(choice: &Value) -> Option<String> {
    match choice {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn into_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

#[cfg(test)]
mod tests;
