//! The question for a summary: the conversation as one text, an earlier summary to bring up to date, and a template.

use super::{as_step, compaction, newest_summary, origin, place, replayed, size, visible};
use crate::context::Origin;
use domain::{
    context::{Window, tail_start},
    ids::MessageId,
    limits::SUMMARY_TOOL_CHARS_MAX,
    message::{Message, User},
    part::{Body, Part, Text, ToolState, attached::File},
};
use llm::request::{Message as Lowered, Request, ToolChoice, UserPart};
use store::log::messages::MessageWithParts;

/// How a summary is written.
const SYSTEM: &str = include_str!("../prompt/compaction.txt");
/// What it says.
const TEMPLATE: &str = include_str!("../prompt/template.txt");

/// What a summary is made from.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// The summary that it brings up to date.
    before: Option<&'a MessageWithParts>,
    /// What it sums up.
    head: Vec<&'a MessageWithParts>,
    /// The first message that is kept as it is.
    pub(crate) tail_start_id: Option<MessageId>,
}

impl<'a> Plan<'a> {
    /// Plans the summary that the message `asked` wishes for.
    pub(crate) fn new(entries: &'a [MessageWithParts], asked: &MessageId, window: &Window) -> Self {
        let asked = place(entries, asked).unwrap_or(entries.len());
        let before = newest_summary(&entries[..asked]).map(|(_, summary)| &entries[summary]);
        let replay = (asked < entries.len()).then(|| replayed(entries, asked)).flatten();
        let is_plain = |entry: &&MessageWithParts| {
            compaction(&entry.parts).is_none() && before.is_none_or(|before| before.seq != entry.seq)
        };
        let seen = visible(&entries[..replay.unwrap_or(asked)]).into_iter().filter(is_plain);
        let mut head: Vec<&MessageWithParts> = seen.collect();
        // A prompt that was too long comes back after the summary: nothing may stand beside it.
        let sizes: Vec<(u64, bool)> = head.iter().map(|entry| (size(entry), begins(entry))).collect();
        let tail = match replay {
            Some(_) => None,
            None => tail_start(&sizes, window),
        };
        let tail_start_id = tail.and_then(|tail| head.get(tail)).map(|entry| entry.message.id().clone());
        head.truncate(tail.unwrap_or(head.len()));
        Self { before, head, tail_start_id }
    }

    /// The question.
    pub(crate) fn request(&self, user: &User, window: &Window) -> Request {
        let mut text = String::new();
        if let Some(before) = self.before {
            let said = said(&before.parts).join("\n");
            text.push_str(&format!("<earlier-summary>\n{said}\n</earlier-summary>\n\n"));
        }
        text.push_str("<conversation>\n");
        for entry in &self.head {
            text.push_str(&told(entry));
        }
        text.push_str("</conversation>\n\n");
        text.push_str(TEMPLATE);
        Request {
            model: user.model.model.model_id.clone(),
            system: vec![SYSTEM.to_owned()],
            messages: vec![Lowered::User(vec![UserPart::Text(text)])],
            tools: vec![],
            tool_choice: ToolChoice::Auto,
            output_tokens_max: window.answer_tokens(),
            cache_key: user.session_id.to_string(),
            ..Request::default()
        }
    }
}

fn begins(entry: &MessageWithParts) -> bool {
    matches!(entry.message, Message::User(_)) && origin(&entry.parts) != Origin::Note
}

/// The texts of a message that a model is shown.
fn said(parts: &[(u64, Part)]) -> Vec<String> {
    parts
        .iter()
        .filter_map(|(_, part)| match &part.body {
            Body::Text(text) if text.ignored != Some(true) && !text.text.is_empty() => {
                Some(text.text.clone())
            }
            _ => None,
        })
        .collect()
}

/// A message as lines, with the role of who speaks.
fn told(entry: &MessageWithParts) -> String {
    if as_step(entry).is_some_and(|step| step.error.as_ref().is_some_and(|error| !error.is_abort())) {
        return String::new();
    }
    let role = if as_step(entry).is_some() { "Agent" } else { "Person" };
    let mut text = String::new();
    for (_, part) in &entry.parts {
        match &part.body {
            Body::Text(said) if said.ignored != Some(true) && !said.text.is_empty() => {
                text.push_str(&format!("[{role}]: {}\n", said.text));
            }
            Body::File(file) => text.push_str(&format!("[{role}]: {}\n", in_words(file))),
            Body::Subtask(task) => {
                text.push_str(&format!("[{role}, to the agent {}]: {}\n", task.agent, task.prompt));
            }
            Body::Tool(tool) => {
                text.push_str(&format!("[Agent calls {}]: {}\n", tool.tool, tool.state.input()));
                text.push_str(&format!("[{} answers]: {}\n", tool.tool, answer(&tool.state)));
                for file in crate::lower::shown(&tool.state) {
                    text.push_str(&format!("{}\n", in_words(file)));
                }
            }
            Body::Text(_)
            | Body::Reasoning(_)
            | Body::Agent(_)
            | Body::Compaction(_)
            | Body::Patch(_)
            | Body::Snapshot(_)
            | Body::StepStart(_)
            | Body::StepFinish(_)
            | Body::Retry(_) => {}
        }
    }
    text
}

fn answer(state: &ToolState) -> String {
    let said = crate::lower::said(state);
    match said.char_indices().nth(SUMMARY_TOOL_CHARS_MAX) {
        None => said.to_owned(),
        Some((at, _)) => {
            format!("{} [cut: {} of {} bytes]", &said[..at], said.len() - at, said.len())
        }
    }
}

/// A file without its content.
pub(crate) fn in_words(file: &File) -> String {
    let name = file.filename.as_deref().unwrap_or("file");
    format!("[Attached {}: {name}]", file.mime)
}

/// The parts of a prompt that is asked again after a summary: without what made it long.
pub(crate) fn replay(parts: &[(u64, Part)]) -> Vec<Body> {
    let again = |(_, part): &(u64, Part)| match &part.body {
        Body::Text(text) => Some(Body::Text(text.clone().marked(super::REPLAY, true))),
        Body::File(file) if crate::lower::user::is_media(&file.mime) => {
            Some(Body::Text(Text::synthetic(in_words(file)).marked(super::REPLAY, true)))
        }
        // Its text stands beside it, in words of ours.
        Body::File(_) => None,
        Body::Agent(agent) => Some(Body::Agent(agent.clone())),
        // Its tasks are done, or were refused.
        _ => None,
    };
    parts.iter().filter_map(again).collect()
}
