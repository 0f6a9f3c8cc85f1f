//! The model's view of single pieces of a conversation: the answer of a tool call, and attached files.

use domain::conversation::part::{ToolState, attached::File};

/// The answer that a model reads for a call without one, whose worker died.
pub(crate) const INTERRUPTED: &str = "[Tool execution was interrupted]";
/// The text that a model reads instead of a pruned output.
pub(crate) const CLEARED: &str = "[Old tool result content cleared]";

/// The text of a call's answer for the model. A pruned output is left out.
pub(crate) fn answer_text(state: &ToolState) -> &str {
    match state {
        ToolState::Completed { time, .. } if time.compacted.is_some() => CLEARED,
        ToolState::Completed { output, .. } => output,
        ToolState::Error { error, .. } => error,
        ToolState::Pending { .. } | ToolState::Running { .. } => INTERRUPTED,
    }
}

/// The files that a call returned. Files of a pruned output are left out.
pub(crate) fn answer_files(state: &ToolState) -> Vec<&File> {
    let attached = match state {
        ToolState::Completed { time, attachments, .. } if time.compacted.is_none() => &attachments[..],
        ToolState::Completed { .. }
        | ToolState::Error { .. }
        | ToolState::Pending { .. }
        | ToolState::Running { .. } => &[],
    };
    attached.iter().filter_map(|part| part.body.as_file()).collect()
}

/// Whether models receive files of this type unchanged.
pub(crate) fn is_media(mime: &str) -> bool {
    mime.starts_with("image/") || mime == "application/pdf"
}

/// The text that mentions a file whose content is left out.
pub(crate) fn file_mention(file: &File) -> String {
    let name = file.filename.as_deref().unwrap_or("file");
    format!("[Attached {}: {name}]", file.mime)
}
