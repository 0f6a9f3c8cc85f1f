//! Removes characters that Postgres cannot store from JSON of models and tools. JSON strings must not contain NUL:
//! Postgres refuses the whole write, and would refuse it again from every worker that retries it.

use domain::text::without_nul;
use serde_json::{Map, Value};

/// Replaces NUL with U+FFFD in every string of `value`.
pub(crate) fn value(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains('\0') => Value::String(without_nul(&text).into_owned()),
        Value::Array(values) => Value::Array(values.into_iter().map(self::value).collect()),
        Value::Object(fields) => Value::Object(map(fields)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Like [`value`], for an object; keys are cleaned as well.
pub(crate) fn map(fields: Map<String, Value>) -> Map<String, Value> {
    fields.into_iter().map(|(key, field)| (without_nul(&key).into_owned(), value(field))).collect()
}

#[cfg(test)]
mod tests {
    use super::value;
    use serde_json::json;

    #[test]
    fn no_text_at_any_depth_keeps_a_nul() {
        let dirty = json!({"a\0": ["x\0y", {"b": "\0"}], "n": 1, "t": true, "z": null, "s": "é"});
        let clean =
            json!({"a\u{fffd}": ["x\u{fffd}y", {"b": "\u{fffd}"}], "n": 1, "t": true, "z": null, "s": "é"});
        assert_eq!(value(dirty), clean);
        assert_eq!(value(clean.clone()), clean);
    }
}
