//! Reads the arguments of a call as the model means them: `null` for what it leaves out, `"2"` or `2.0` for a number, a list as text. What has one
//! meaning by the schema of the tool is read, here and for every tool; whatever has not stays as it is, and the schema refuses it.

use serde_json::{Map, Value};

/// Names of texts in which models say why they make a call. A tool that has no such argument needs none.
const COMMENTS: [&str; 6] = ["description", "explanation", "purpose", "reason", "reasoning", "thought"];

/// The value that `value` means by a schema.
pub(super) fn read(schema: &Value, value: Value) -> Value {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => object(schema, value),
        Some("array") => list(schema, value),
        Some("integer") => integer(schema, value),
        Some("number") => match text_of(&value).and_then(|text| text.parse::<f64>().ok()) {
            Some(number) if number.is_finite() => number.into(),
            Some(_) | None => value,
        },
        Some("boolean") => match text_of(&value).map(str::to_ascii_lowercase).as_deref() {
            Some("true") => true.into(),
            Some("false") => false.into(),
            Some(_) | None => value,
        },
        Some("string") => text(schema, value),
        Some(_) | None => value,
    }
}

fn object(schema: &Value, value: Value) -> Value {
    let members = match from_text(value, Value::is_object) {
        Value::Object(members) => members,
        other => return other,
    };
    let Some(known) = schema.get("properties").and_then(Value::as_object) else {
        return Value::Object(members);
    };
    let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_absent = |key: &str, value: &Value| value.is_null() && !required.iter().any(|name| name == key);
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let (mut read_members, mut others) = (Map::new(), vec![]);
    for (key, value) in members {
        match known.get(&key) {
            Some(_) if is_absent(&key, &value) => {}
            Some(own) => drop(read_members.insert(key, read(own, value))),
            None => others.push((key, value)),
        }
    }
    for (key, value) in others {
        let meant =
            known.iter().find(|(name, _)| is_spelling(name, &key) && !read_members.contains_key(*name));
        match meant {
            Some((name, _)) if is_absent(name, &value) => {}
            Some((name, own)) => drop(read_members.insert(name.clone(), read(own, value))),
            None if is_closed && says_nothing(&key, &value) => {}
            None => drop(read_members.insert(key, value)),
        }
    }
    Value::Object(read_members)
}

fn list(schema: &Value, value: Value) -> Value {
    match (from_text(value, Value::is_array), schema.get("items")) {
        (Value::Array(items), Some(own)) => items.into_iter().map(|item| read(own, item)).collect(),
        (other, _) => other,
    }
}

/// A whole number, cut to the largest that the schema allows.
fn integer(schema: &Value, value: Value) -> Value {
    // A float beyond the range becomes its end.
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction")]
    let of_float = |number: f64| (number.fract() == 0.0).then_some(number as i64);
    let number = match &value {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.as_u64().map(|_| i64::MAX))
            .or_else(|| number.as_f64().and_then(of_float)),
        Value::String(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| text.parse().ok().and_then(of_float))
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let most = schema.get("maximum").and_then(Value::as_i64).unwrap_or(i64::MAX);
    number.map_or(value, |number| number.min(most).into())
}

/// A text. A whole number and a truth value have one spelling, and a word of a list may have another case.
fn text(schema: &Value, value: Value) -> Value {
    let value = match value {
        Value::Number(number) if !number.is_f64() => number.to_string().into(),
        Value::Bool(is_true) => is_true.to_string().into(),
        other => other,
    };
    let words = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let mut same = words.filter(|word| {
        word.as_str().zip(text_of(&value)).is_some_and(|(word, text)| word.eq_ignore_ascii_case(text))
    });
    match (same.next(), same.next()) {
        (Some(word), None) => word.clone(),
        _ => value,
    }
}

/// The value in a text, if it is of this kind; otherwise the text.
fn from_text(value: Value, is_kind: fn(&Value) -> bool) -> Value {
    let inner = value.as_str().and_then(|text| serde_json::from_str(text).ok());
    inner.filter(is_kind).unwrap_or(value)
}

fn text_of(value: &Value) -> Option<&str> {
    value.as_str().map(str::trim)
}

/// Whether `key` is another spelling of `name`: `file_path` of `filePath`.
fn is_spelling(name: &str, key: &str) -> bool {
    let letters = |text: &str| {
        text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
    };
    key.is_ascii() && letters(name) == letters(key)
}

/// Whether a tool that does not have this argument does the same without it.
fn says_nothing(key: &str, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty() || COMMENTS.contains(&key),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "filePath": {"type": "string"}, "pattern": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 2000},
                "replaceAll": {"type": "boolean"}, "ratio": {"type": "number"},
                "level": {"type": "string", "enum": ["low", "high"]},
                "todos": {"type": "array", "items": {"type": "object", "properties": {"done": {"type": "boolean"}}}},
            },
            "required": ["pattern"],
            "additionalProperties": false
        })
    }

    #[test]
    fn what_has_one_meaning_is_read() {
        for (input, want) in [
            (json!({"filePath": null, "limit": null}), json!({})),
            (json!({"limit": "1"}), json!({"limit": 1})),
            (json!({"limit": " 2.0 "}), json!({"limit": 2})),
            (json!({"limit": 1.0}), json!({"limit": 1})),
            (json!({"limit": 5000}), json!({"limit": 2000})),
            (json!({"limit": 1e30}), json!({"limit": 2000})),
            (json!({"limit": u64::MAX}), json!({"limit": 2000})),
            (json!({"replaceAll": "false"}), json!({"replaceAll": false})),
            (json!({"replaceAll": "True"}), json!({"replaceAll": true})),
            (json!({"ratio": "0.5"}), json!({"ratio": 0.5})),
            (json!({"pattern": 404}), json!({"pattern": "404"})),
            (json!({"pattern": true}), json!({"pattern": "true"})),
            (json!({"level": "High"}), json!({"level": "high"})),
            (json!({"todos": "[{\"done\": \"true\"}]"}), json!({"todos": [{"done": true}]})),
            (
                json!({"todos": [{"done": "false", "extra": 1}]}),
                json!({"todos": [{"done": false, "extra": 1}]}),
            ),
            (json!({"file_path": "a", "replace_all": "true"}), json!({"filePath": "a", "replaceAll": true})),
            (json!({"run_in_background": false, "note": "", "more": null}), json!({})),
            (json!({"description": "I look", "explanation": "so"}), json!({})),
            (json!("{\"limit\": \"3\"}"), json!({"limit": 3})),
        ] {
            assert_eq!(read(&schema(), input.clone()), want, "{input}");
        }
    }

    #[test]
    fn what_is_unclear_stays_for_the_schema_to_refuse() {
        for input in [
            json!({"pattern": null}),
            json!({"limit": "many"}),
            json!({"limit": 1.5}),
            json!({"limit": true}),
            json!({"limit": [1]}),
            json!({"limit": -1}),
            json!({"replaceAll": 1}),
            json!({"replaceAll": "yes"}),
            json!({"pattern": ["a"]}),
            json!({"pattern": {"a": 1}}),
            json!({"pattern": 1.5}),
            json!({"todos": "one"}),
            json!({"level": "middle"}),
            json!({"run_in_background": true}),
            json!({"filePath": "a", "file_path": "b"}),
            json!([1]),
            json!("text"),
        ] {
            assert_eq!(read(&schema(), input.clone()), input);
        }
    }

    proptest! {
        #[test]
        fn reading_again_changes_nothing(
            limit in prop_oneof![any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from), ".*".prop_map(Value::from)],
            flag in "(true|False|x|null)", pattern in ".*",
        ) {
            let input = json!({"limit": limit, "replaceAll": flag, "pattern": pattern, "todos": format!("[{flag}]")});
            let once = read(&schema(), input);
            prop_assert_eq!(read(&schema(), once.clone()), once.clone());
            prop_assert_eq!(&once["pattern"], &Value::from(pattern));
        }
    }
}
