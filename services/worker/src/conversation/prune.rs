//! Prunes old tool outputs that the model no longer needs. They stay stored, and clients can still read them.

use super::entries::{Origin, as_user, origin};
use domain::{
    conversation::{
        context::{estimate, prunable},
        message::Message,
        part::{Body, Part, Ran, Tool, ToolState},
    },
    ids::Timestamp,
    limits::MEDIA_TOKENS,
};
use store::log::messages::MessageWithParts;

/// Newest turns whose tool output is never left out.
const PRUNE_TURNS_KEPT: usize = 2;

/// Tools whose output is kept: the model needs it until the end.
const KEPT: [&str; 1] = ["skill"];

/// The parts whose output is pruned from now on, in their new form.
pub(crate) fn pruned(entries: &[MessageWithParts], now: Timestamp) -> Vec<Part> {
    let mut turns = 0;
    let mut outputs: Vec<(&Part, &Tool)> = vec![];
    'back: for entry in entries.iter().rev() {
        if as_user(entry).is_some() && origin(&entry.parts) == Origin::Prompt {
            turns += 1;
        }
        if matches!(&entry.message, Message::Assistant(step) if step.is_summary()) {
            break;
        }
        if turns < PRUNE_TURNS_KEPT {
            continue;
        }
        for (_, part) in entry.parts.iter().rev() {
            let Some(tool) = part.body.as_tool() else { continue };
            if KEPT.contains(&tool.tool.as_str()) {
                continue;
            }
            match &tool.state {
                // When this output was pruned, everything before it was considered as well.
                ToolState::Completed { time, .. } if time.compacted.is_some() => break 'back,
                ToolState::Completed { .. } => outputs.push((part, tool)),
                ToolState::Pending { .. } | ToolState::Running { .. } | ToolState::Error { .. } => {}
            }
        }
    }
    let sizes: Vec<u64> = outputs.iter().map(|(_, tool)| output_tokens(tool)).collect();
    prunable(&sizes)
        .into_iter()
        .filter_map(|place| outputs.get(place))
        .map(|(part, tool)| without_output(part, tool, now))
        .collect()
}

fn output_tokens(tool: &Tool) -> u64 {
    match &tool.state {
        ToolState::Completed { output, attachments, .. } => {
            let media = u64::try_from(attachments.len()).unwrap_or_default();
            estimate(output).saturating_add(media.saturating_mul(MEDIA_TOKENS))
        }
        ToolState::Pending { .. } | ToolState::Running { .. } | ToolState::Error { .. } => 0,
    }
}

fn without_output(part: &Part, tool: &Tool, now: Timestamp) -> Part {
    let mut tool = tool.clone();
    if let ToolState::Completed { time, .. } = &mut tool.state {
        *time = Ran { compacted: Some(now), ..*time };
    }
    Part { body: Body::Tool(tool), ..part.clone() }
}
