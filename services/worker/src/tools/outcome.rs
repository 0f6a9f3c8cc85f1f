//! What comes of a tool call: an answer for the model, or the reason why there is none.

use crate::{process::sandbox::is_away, repository::workspace};
use domain::{message, part::attached::File};
use serde_json::{Map, Value};
use tonic::Status;

/// The metadata key of an answer that was cut: the path of the whole answer. OpenCode's word.
pub(crate) const OUTPUT_PATH: &str = "outputPath";
/// What the model reads after a change that may or may not have been made.
pub(crate) const UNCERTAIN: &str = "This call was interrupted when its worker or the sandbox stopped. It may or may not have taken effect: \
                         look at the file before you repeat it.";

/// Why a call has no ordinary answer.
#[derive(Debug)]
pub(crate) enum ToolError {
    /// The model is told this text; the turn goes on.
    Model(String),
    /// The turn ends.
    Broken(message::Error),
    /// Another worker owns the session.
    Fenced,
}

/// An answer for the model, with facts for clients.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Output {
    /// What the call did, in a few words.
    pub(crate) title: String,
    /// What the model reads.
    pub(crate) text: String,
    /// Exit code, diff, counts.
    pub(crate) metadata: Map<String, Value>,
    /// The new list of things to do.
    pub(crate) todos: Option<Value>,
    /// Pictures and documents, with their bytes.
    pub(crate) media: Vec<File>,
}

/// Tells what a refusal by the sandbox means: the model is told of a fault of its call; a fault of the system ends the turn.
pub(crate) fn sandbox_error(status: &Status) -> ToolError {
    match rpc::status::code_of(status).as_deref() {
        Some("epoch_stale") => ToolError::Fenced,
        Some("sandbox_unavailable" | "token_invalid" | "workspace_missing") => {
            ToolError::Broken(workspace::failure(status))
        }
        Some(_) => ToolError::Model(status.message().to_owned()),
        None if is_away(status) => ToolError::Broken(workspace::failure(status)),
        None => ToolError::Model(format!("The sandbox refused the call: {}", status.message())),
    }
}
