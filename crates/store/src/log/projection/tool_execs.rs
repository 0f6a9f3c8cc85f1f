//! Tool calls whose effect may have begun. The write that stores "running" inserts the row, before the effect starts; the
//! write that stores the result closes it. An exec has the id of its call's part.

use domain::conversation::part::{Part, ToolState};

/// The tool of the call that a part begins, if it begins one.
pub(super) fn begun_tool(part: &Part) -> Option<String> {
    let tool = part.body.as_tool()?;
    matches!(tool.state, ToolState::Running { .. }).then(|| tool.tool.clone())
}

/// Whether a part is a call that is over.
pub(super) fn is_over(part: &Part) -> bool {
    part.body.as_tool().is_some_and(|tool| match &tool.state {
        ToolState::Pending { .. } | ToolState::Running { .. } => false,
        ToolState::Completed { .. } | ToolState::Error { .. } => true,
    })
}
