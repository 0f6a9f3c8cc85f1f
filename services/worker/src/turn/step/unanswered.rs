//! The last state of a call that a stopped step ends. Pure, but for the clock.

use crate::{
    calls::output,
    process::clock::now,
    tools::{bash, outcome::Output, tool::Tool},
};
use domain::conversation::part::{Part, Ran, Span, ToolState};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The state of a call that an abort ended; `None` if it ended before. A command keeps its output: `commands` has the answers that
/// the sandbox gave, by exec id. Otherwise the call keeps the output that clients saw last.
pub(super) fn aborted(part: &Part, commands: &BTreeMap<String, Output>) -> Option<ToolState> {
    let tool = part.body.as_tool()?;
    let ToolState::Running { input, metadata, time, .. } = &tool.state else { return interrupted(part) };
    if tool.tool != Tool::Bash.name() {
        return interrupted(part);
    }
    // The exec id of a command is the id of its part.
    let answer = commands.get(part.id.as_str()).cloned();
    // A command that showed nothing may not have started.
    let has_output =
        |metadata: &Map<String, Value>| metadata.get(bash::OUTPUT).is_some_and(|text| text != "");
    let last_output = || metadata.clone().filter(has_output).map(bash::aborted);
    let Some(answer) = answer.or_else(last_output) else { return interrupted(part) };
    let answer = output::cleaned(Output { title: bash::title_of(input), ..answer });
    Some(ToolState::Completed {
        input: input.clone(),
        output: answer.text.into(),
        title: answer.title,
        metadata: answer.metadata,
        time: Ran::new(time.start, now()),
        attachments: vec![],
    })
}

/// The state of a call that will not get an answer; `None` if it has one.
pub(super) fn interrupted(part: &Part) -> Option<ToolState> {
    let tool = part.body.as_tool()?;
    let (input, metadata, start) = match &tool.state {
        ToolState::Pending { input, .. } => (input, None, now()),
        ToolState::Running { input, metadata, time, .. } => (input, metadata.clone(), time.start),
        ToolState::Completed { .. } | ToolState::Error { .. } => return None,
    };
    let mut metadata = metadata.unwrap_or_default();
    metadata.insert("interrupted".to_owned(), true.into());
    Some(ToolState::Error {
        input: input.clone(),
        error: "Tool execution aborted".to_owned(),
        metadata: Some(metadata),
        time: Span { start, end: Some(now()) },
    })
}
