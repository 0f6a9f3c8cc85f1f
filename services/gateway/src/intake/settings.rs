//! What a prompt says about how it is to be answered: effort, tools, and the form of the answer.

use domain::{
    limits,
    message::{Format, VARIANTS},
};
use rpc::status::invalid;
use std::collections::BTreeMap;
use tonic::Status;

/// Refuses a word that no model knows.
///
/// # Errors
/// `variant_unknown`.
pub(super) fn check_variant(variant: &str) -> Result<(), Status> {
    if variant.is_empty() || VARIANTS.contains(&variant) {
        return Ok(());
    }
    let variant = domain::text::head(variant, limits::NAME_BYTES_MAX);
    Err(invalid(
        "variant_unknown",
        format!("there is no variant {variant:?}; there are: {}", VARIANTS.join(", ")),
    ))
}

/// Refuses too many or impossible switches of tools.
///
/// # Errors
/// `tools_too_many`, `tool_name_invalid`.
pub(super) fn check_tools(tools: &BTreeMap<String, bool>) -> Result<(), Status> {
    if tools.len() > limits::TOOL_SWITCHES_MAX {
        let message = format!("a prompt switches at most {} tools", limits::TOOL_SWITCHES_MAX);
        return Err(invalid("tools_too_many", message));
    }
    let is_name =
        |name: &String| !name.is_empty() && name.len() <= limits::NAME_BYTES_MAX && !name.contains('\0');
    if tools.keys().all(is_name) {
        return Ok(());
    }
    Err(invalid("tool_name_invalid", format!("a tool's name has 1 to {} bytes", limits::NAME_BYTES_MAX)))
}

/// Refuses a schema that no answer can be checked by.
///
/// # Errors
/// `schema_too_large`, `schema_invalid`, `retries_too_many`.
pub(super) fn check_format(format: Option<&Format>) -> Result<(), Status> {
    let Some(Format::JsonSchema { schema, retry_count }) = format else { return Ok(()) };
    let (bytes, most) = (schema.to_string().len(), limits::OUTPUT_SCHEMA_BYTES_MAX);
    if bytes > most {
        let message = format!("the schema of the answer has {bytes} bytes; at most {most} are taken");
        return Err(invalid("schema_too_large", message));
    }
    if schema["type"] != "object" {
        return Err(invalid("schema_invalid", "the schema of an answer is of type object"));
    }
    if schema.to_string().contains("\\u0000") {
        return Err(invalid("schema_invalid", "the schema of an answer has no zero bytes"));
    }
    if let Err(error) = jsonschema::validator_for(schema) {
        let error = error.to_string();
        let message = format!("no answer can be checked by the schema: {}", domain::text::head(&error, 300));
        return Err(invalid("schema_invalid", message));
    }
    if retry_count.is_some_and(|count| count > limits::STRUCTURED_RETRIES_MAX) {
        let message = format!(
            "a structured answer is asked for again at most {} times",
            limits::STRUCTURED_RETRIES_MAX
        );
        return Err(invalid("retries_too_many", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_schema_must_be_one() {
        let check = |schema: Value, retry_count| {
            let status = check_format(Some(&Format::JsonSchema { schema, retry_count })).err();
            status.and_then(|status| rpc::status::code_of(&status))
        };
        let good = json!({"type": "object", "properties": {"a": {"type": "number"}}});
        assert_eq!(check(good.clone(), Some(10)), None);
        for (schema, retries, code) in [
            (json!({"type": "array"}), None, "schema_invalid"),
            (json!(true), None, "schema_invalid"),
            (json!({"type": "object", "properties": 7}), None, "schema_invalid"),
            (json!({"type": "object", "$ref": "https://example.com/x"}), None, "schema_invalid"),
            (json!({"type": "object", "title": "\0"}), None, "schema_invalid"),
            (json!({"type": "object", "title": "x".repeat(70_000)}), None, "schema_too_large"),
            (good, Some(11), "retries_too_many"),
        ] {
            assert_eq!(check(schema, retries).as_deref(), Some(code));
        }
    }
}
