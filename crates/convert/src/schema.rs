//! Checks of JSON schemas, and of values against them. A schema may need exponential time for its value.

use convert_client::{reply::SchemaVerdict, request::SchemaCheck};
use domain::text::head;
use jsonschema::Validator;
use serde_json::Value;

/// Problems of one value that the model reads. The others are left out.
const PROBLEMS_MAX: usize = 5;
/// Bytes of one problem's text: it repeats the value that does not match. A longer one is cut.
const PROBLEM_BYTES_MAX: usize = 300;

/// Checks a schema, and its value if there is one.
pub(crate) fn check(check: &SchemaCheck) -> SchemaVerdict {
    let parsed = serde_json::from_str(&check.schema).map_err(|error| error.to_string());
    let validator = parsed.and_then(|schema: Value| {
        jsonschema::validator_for(&schema)
            .map_err(|error| head(&error.to_string(), PROBLEM_BYTES_MAX).to_owned())
    });
    let validator = match validator {
        Ok(validator) => validator,
        Err(problem) => return SchemaVerdict::Unusable(problem),
    };
    let Some(value) = &check.value else { return SchemaVerdict::Match };
    match serde_json::from_str(value) {
        Ok(value) => problems(&validator, &value).map_or(SchemaVerdict::Match, SchemaVerdict::Mismatch),
        Err(error) => SchemaVerdict::Mismatch(error.to_string()),
    }
}

/// Lists what does not match the schema, and where, in one line; `None`: the value matches.
fn problems(schema: &Validator, value: &Value) -> Option<String> {
    let texts = schema.iter_errors(value).take(PROBLEMS_MAX).map(|problem| {
        let text = format!("{problem} (at {:?})", problem.instance_path().as_str());
        head(&text, PROBLEM_BYTES_MAX).to_owned()
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn verdict(schema: &str, value: Option<&str>) -> SchemaVerdict {
        check(&SchemaCheck { schema: schema.to_owned(), value: value.map(ToOwned::to_owned) })
    }

    #[test]
    fn a_value_is_told_where_it_does_not_match() {
        let schema =
            r#"{"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]}"#;
        assert_eq!(verdict(schema, None), SchemaVerdict::Match);
        assert_eq!(verdict(schema, Some(r#"{"answer": 42}"#)), SchemaVerdict::Match);
        let SchemaVerdict::Mismatch(problem) = verdict(schema, Some(r#"{"answer": "x"}"#)) else { panic!() };
        assert!(problem.contains("number") && problem.contains("/answer"), "{problem}");
    }

    #[test]
    fn a_schema_that_is_none_is_unusable() {
        for schema in ["{", r#"{"properties": 7}"#, r#"{"$ref": "https://example.com/x"}"#] {
            assert!(matches!(verdict(schema, None), SchemaVerdict::Unusable(_)), "{schema}");
        }
    }
}
