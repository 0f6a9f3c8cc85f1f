//! Checks the options of a prompt: variant, tools, and the format of the answer.

use crate::errors::{error::Error, invalid::Invalid};
use convert_client::{
    converter::TenantConverter, error::Error as ConversionError, reply::SchemaVerdict, request::SchemaCheck,
};
use domain::{
    conversation::message::{Format, VARIANTS},
    limits,
};
use rpc::v1::ErrorCode;
use std::collections::BTreeMap;

/// Tools that one prompt can switch on or off: more than exist. Beyond it: `tools_too_many`.
const TOOL_SWITCHES_MAX: usize = 100;
/// Bytes of the schema of a structured answer. The worker sends the schema with every model call of the turn. Beyond it:
/// `schema_too_large`.
const OUTPUT_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Most retries that a prompt may set: a model that failed ten times fails again. Beyond it: `retries_too_many`.
const STRUCTURED_RETRIES_MAX: u32 = 10;

/// Refuses an unknown variant.
///
/// # Errors
/// `variant_unknown`.
pub(in crate::app) fn check_variant(variant: &str) -> Result<(), Error> {
    if variant.is_empty() || VARIANTS.contains(&variant) {
        return Ok(());
    }
    let variant = domain::text::head(variant, limits::NAME_BYTES_MAX);
    let message = format!("no such variant: {variant:?}; available: {}", VARIANTS.join(", "));
    Err(Invalid::VariantUnknown.because(message))
}

/// Refuses too many tool switches, and impossible names.
///
/// # Errors
/// `tools_too_many`, `tool_name_invalid`.
pub(in crate::app) fn check_tools(tools: &BTreeMap<String, bool>) -> Result<(), Error> {
    if tools.len() > TOOL_SWITCHES_MAX {
        let message =
            format!("the prompt switches {} tools, the limit is {}", tools.len(), TOOL_SWITCHES_MAX);
        return Err(Invalid::ToolsTooMany.because(message));
    }
    let is_name =
        |name: &String| !name.is_empty() && name.len() <= limits::NAME_BYTES_MAX && !name.contains('\0');
    if tools.keys().all(is_name) {
        return Ok(());
    }
    let message = format!("a tool name must have 1 to {} bytes, none of them zero", limits::NAME_BYTES_MAX);
    Err(Invalid::ToolName.because(message))
}

/// Refuses a schema that cannot validate an answer.
///
/// # Errors
/// `schema_too_large`, `schema_invalid`, `retries_too_many`, `conversion_busy`, `conversion_failed`.
pub(in crate::app) async fn check_format(
    converter: TenantConverter<'_>,
    format: Option<&Format>,
) -> Result<(), Error> {
    let Some(Format::JsonSchema { schema, retry_count }) = format else { return Ok(()) };
    let (bytes, most) = (schema.to_string().len(), OUTPUT_SCHEMA_BYTES_MAX);
    if bytes > most {
        let message = format!("the answer schema is {bytes} bytes, the limit is {most} bytes");
        return Err(Invalid::SchemaTooLarge.because(message));
    }
    if schema["type"] != "object" {
        return Err(Invalid::Schema.because("the answer schema must be of type object"));
    }
    if schema.to_string().contains("\\u0000") {
        return Err(Invalid::Schema.because("the answer schema must not contain zero bytes"));
    }
    if retry_count.is_some_and(|count| count > STRUCTURED_RETRIES_MAX) {
        let message = format!("the limit for retries of a structured answer is {STRUCTURED_RETRIES_MAX}");
        return Err(Invalid::RetriesTooMany.because(message));
    }
    // Compiling a schema of a client may take any time.
    let check = SchemaCheck { schema: schema.to_string(), value: None };
    match converter.schema(check).await {
        Ok(SchemaVerdict::Match) => Ok(()),
        Ok(SchemaVerdict::Mismatch(problem) | SchemaVerdict::Unusable(problem)) => {
            Err(Invalid::Schema.because(format!("the answer schema cannot be used: {problem}")))
        }
        Err(error @ (ConversionError::TooSlow | ConversionError::TooLarge | ConversionError::Crashed(_))) => {
            let message = format!("the answer schema cannot be used: {}: {error}", error.code());
            Err(Invalid::Schema.because(message))
        }
        Err(error @ (ConversionError::Busy | ConversionError::Io(_) | ConversionError::Protocol(_))) => {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot check an answer schema");
            let code = ErrorCode::parse(error.code()).unwrap_or(ErrorCode::ConversionFailed);
            Err(Error::ConverterUnavailable(code))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn only_object_schemas_are_accepted() {
        let program = chassis::programs::find(convert_client::converter::PROGRAM).unwrap();
        let converter = convert_client::converter::Converter::new(program);
        let tenant = domain::ids::TenantId(uuid::Uuid::nil());
        let check = async |schema: Value, retry_count| {
            let format = Format::JsonSchema { schema, retry_count };
            let error = check_format(converter.of(tenant), Some(&format)).await.err();
            error.map(|error| error.code().to_owned())
        };
        let good = json!({"type": "object", "properties": {"a": {"type": "number"}}});
        assert_eq!(check(good.clone(), Some(10)).await, None);
        for (schema, retries, code) in [
            (json!({"type": "array"}), None, "schema_invalid"),
            (json!(true), None, "schema_invalid"),
            (json!({"type": "object", "properties": 7}), None, "schema_invalid"),
            (json!({"type": "object", "$ref": "https://example.com/x"}), None, "schema_invalid"),
            (json!({"type": "object", "title": "\0"}), None, "schema_invalid"),
            (json!({"type": "object", "title": "x".repeat(70_000)}), None, "schema_too_large"),
            (good, Some(11), "retries_too_many"),
        ] {
            assert_eq!(check(schema, retries).await.as_deref(), Some(code));
        }
    }
}
