//! The result of a tool call: an answer for the model, or the reason why there is none.

use crate::process::sandbox::{is_away, is_lost, is_missing, is_stale};
use convert_client::error::Error;
use domain::conversation::{message, part::attached::File};
use rpc::v1::ErrorCode;
use serde_json::{Map, Value};
use tonic::Status;

/// The metadata key that tells whether an answer was cut. OpenCode's name; every completed call has it.
pub(crate) const TRUNCATED: &str = "truncated";
/// The metadata key for the path of the whole answer, if the answer was cut. OpenCode's name.
pub(crate) const OUTPUT_PATH: &str = "outputPath";
/// The model reads this after a change whose result is unknown.
pub(crate) const UNCERTAIN: &str = "This call was interrupted when its worker or the sandbox stopped. It may or may not have taken effect: \
                         check the file before you repeat it.";

/// Why a call has no ordinary answer.
#[derive(Debug)]
pub(crate) enum ToolError {
    /// The model gets this text, and the turn continues.
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
    pub(crate) todos: Option<Value>,
    /// Images and documents, with their bytes.
    pub(crate) media: Vec<File>,
}

/// The metadata of a completed call. An answer that does not tell that it was cut is whole.
pub(crate) fn completed_metadata(mut metadata: Map<String, Value>) -> Map<String, Value> {
    metadata.entry(TRUNCATED).or_insert(Value::Bool(false));
    metadata
}

/// Converts the end of a conversion without a result. The model may try again with other content.
pub(crate) fn conversion_error(error: &Error) -> ToolError {
    if matches!(error, Error::Crashed(_) | Error::Io(_) | Error::Protocol(_)) {
        tracing::warn!(error = error as &dyn std::error::Error, "a conversion failed");
    }
    ToolError::Model(format!("{}: {error}", error.code()))
}

/// The error that a turn shows when its workspace cannot be opened, or vanishes while it works.
pub(crate) fn failure(status: &Status) -> message::Error {
    if is_away(status) {
        return message::Error::coded(
            ErrorCode::SandboxUnavailable.as_str(),
            "The sandbox service does not answer; try again later",
        );
    }
    // A loop calls for files only after it opened them.
    if is_missing(status) || is_lost(status) {
        let lost = ErrorCode::WorkspaceLost.as_str();
        let text = format!(
            "The sandbox machine lost the files of this session, with all changes that were not exported. To continue with the \
             files that the session began with, run `flotilla restart-workspace` ({lost})"
        );
        return message::Error::coded(lost, text);
    }
    let code = rpc::status::code_of(status).unwrap_or_else(|| ErrorCode::WorkspaceFailed.as_str().to_owned());
    message::Error::coded(&code, format!("{} ({code})", status.message()))
}

/// Converts a failure to open the files, which ends the turn.
pub(crate) fn opening_error(status: &Status) -> ToolError {
    if is_stale(status) { ToolError::Fenced } else { ToolError::Broken(failure(status)) }
}

/// Converts a refusal by the sandbox. The model learns about a mistake in its call; a system failure ends the turn.
pub(crate) fn sandbox_error(status: &Status) -> ToolError {
    match rpc::status::code(status) {
        _ if is_away(status) => ToolError::Broken(failure(status)),
        Some(ErrorCode::EpochStale) => ToolError::Fenced,
        Some(ErrorCode::SandboxUnavailable | ErrorCode::HelpersBusy | ErrorCode::WorkspaceMissing) => {
            ToolError::Broken(failure(status))
        }
        _ if rpc::status::code_of(status).is_some() => ToolError::Model(status.message().to_owned()),
        _ => ToolError::Model(format!("The sandbox refused the call: {}", status.message())),
    }
}
