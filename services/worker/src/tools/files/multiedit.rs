//! `multiedit`: several edits of one file, all or none.

use super::edit;
use crate::tools::{
    context::CallContext,
    outcome::{Output, ToolError},
    spec::tool_spec,
};
use convert_client::request::FileVersions;
use domain::policy::tool;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments of a call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    file_path: String,
    edits: Vec<edit::Edit>,
}

/// Maximum edits of one call. A call with more is refused, and the model reads why.
const EDITS_MAX: usize = 100;

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "multiedit",
        "Makes several edits of one file in one call, one after the other, each as the edit tool would: each edit sees the \
         result of the one before. If one edit fails, none is made.",
        json!({
            "type": "object",
            "properties": {
                "filePath": {"type": "string", "minLength": 1, "description": "Absolute path"},
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": EDITS_MAX,
                    "items": {
                        "type": "object",
                        "properties": {
                            "oldString": {"type": "string", "minLength": 1, "description": "The text to replace"},
                            "newString": {"type": "string", "description": "The replacement text"},
                            "replaceAll": {"type": "boolean", "description": "Replace every occurrence"}
                        },
                        "required": ["oldString", "newString"],
                        "additionalProperties": false
                    }
                }
            },
            "required": ["filePath", "edits"],
            "additionalProperties": false
        }),
    )
}

/// Describes the change that a call would make, for the person whom the session asks for permission.
pub(crate) async fn preview(ctx: &CallContext, input: Input) -> Result<Map<String, Value>, ToolError> {
    edit::preview_change(ctx, &input.file_path, input.edits).await
}

/// The change that the arguments of a call tell, without the file.
pub(super) fn written(input: Input) -> Vec<FileVersions> {
    edit::written_edits(&input.file_path, input.edits)
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    edit::change(ctx, input.file_path, input.edits).await
}
