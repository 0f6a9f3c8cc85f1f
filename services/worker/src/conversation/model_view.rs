//! How a model sees single pieces of a conversation: the answer of a tool call, and attached files.

use domain::part::{ToolState, attached::File};

/// What a model reads as the answer of a call that has none: its worker died.
pub(crate) const INTERRUPTED: &str = "[Tool execution was interrupted]";
/// What a model reads in place of an output that was pruned.
pub(crate) const CLEARED: &str = "[Old tool result content cleared]";

/// What a call says to the model. A pruned output is left out.
pub(crate) fn answer_text(state: &ToolState) -> &str {
    match state {
        ToolState::Completed { time, .. } if time.compacted.is_some() => CLEARED,
        ToolState::Completed { output, .. } => output,
        ToolState::Error { error, .. } => error,
        ToolState::Pending { .. } | ToolState::Running { .. } => INTERRUPTED,
    }
}

/// The files that a call gave. Files of a pruned output are left out.
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

/// Whether models are sent files of this type as they are.
pub(crate) fn is_media(mime: &str) -> bool {
    mime.starts_with("image/") || mime == "application/pdf"
}

/// The mention of a file whose content is left out.
pub(crate) fn file_mention(file: &File) -> String {
    let name = file.filename.as_deref().unwrap_or("file");
    format!("[Attached {}: {name}]", file.mime)
}
