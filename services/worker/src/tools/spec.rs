//! Builds tool descriptions and reads tool arguments.

use super::outcome::ToolError;
use domain::policy::tool;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Builds a tool's description and schema.
pub(super) fn tool_spec(name: &str, description: &str, schema: Value) -> tool::Spec {
    tool::Spec { name: name.to_owned(), description: description.to_owned(), schema }
}

/// Reads arguments that match the schema.
///
/// # Errors
/// A sentence for the model.
pub(super) fn parse_arguments<T: DeserializeOwned>(input: Value) -> Result<T, ToolError> {
    serde_json::from_value(input)
        .map_err(|error| ToolError::Model(format!("The arguments cannot be read: {error}")))
}
