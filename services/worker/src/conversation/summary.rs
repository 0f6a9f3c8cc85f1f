//! The model request for a summary: the conversation as one text, an earlier summary to update, and a template.

use super::{
    entries::{
        REPLAY, as_step, compaction, is_note, newest_summary, position, repeated_prompt, size, visible,
    },
    model_view::{answer_files, answer_text, file_mention, is_media},
};
use domain::{
    conversation::{
        context::{Window, tail_start},
        message::{Message, User},
        part::{Body, Part, Text, ToolState},
    },
    ids::MessageId,
};
use llm::request::{Message as Lowered, Request, ToolChoice, UserPart};
use store::log::messages::MessageWithParts;

/// Characters of one tool's output that go into a request for a summary. The rest is cut.
const SUMMARY_TOOL_CHARS_MAX: usize = 2_000;

/// Tells the model how to write a summary.
const SYSTEM: &str = include_str!("../prompt/compaction.txt");
/// The outline of a summary.
const TEMPLATE: &str = include_str!("../prompt/template.txt");

/// The inputs of a summary.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// The earlier summary, which it updates.
    before: Option<&'a MessageWithParts>,
    /// The messages that it replaces.
    head: Vec<&'a MessageWithParts>,
    /// The first message that the model continues to see unchanged.
    pub(crate) tail_start_id: Option<MessageId>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(entries: &'a [MessageWithParts], request: &MessageId, window: &Window) -> Self {
        let request = position(entries, request).unwrap_or(entries.len());
        let before = newest_summary(&entries[..request]).map(|summary| &entries[summary.step]);
        let replay = (request < entries.len()).then(|| repeated_prompt(entries, request)).flatten();
        let is_plain = |entry: &&MessageWithParts| {
            compaction(&entry.parts).is_none() && before.is_none_or(|before| before.seq != entry.seq)
        };
        let end = replay.unwrap_or(request);
        // The notes that follow a repeated prompt: nothing else shows them to the model after the summary.
        let notes = entries[end..request].iter().filter(|entry| is_note(entry));
        let mut head: Vec<&MessageWithParts> =
            visible(&entries[..end]).into_iter().chain(notes).filter(is_plain).collect();
        // A prompt that was too long is repeated after the summary. Keep nothing else unchanged.
        let sizes: Vec<(u64, bool)> = head.iter().map(|entry| (size(entry), begins(entry))).collect();
        let tail = match replay {
            Some(_) => None,
            None => tail_start(&sizes, window),
        };
        let tail_start_id = tail.and_then(|tail| head.get(tail)).map(|entry| entry.message.id().clone());
        head.truncate(tail.unwrap_or(head.len()));
        Self { before, head, tail_start_id }
    }

    /// The request to the model.
    pub(crate) fn request(&self, user: &User, window: &Window) -> Request {
        let mut text = String::new();
        if let Some(before) = self.before {
            let words = texts(&before.parts).join("\n");
            text.push_str(&format!("<earlier-summary>\n{words}\n</earlier-summary>\n\n"));
        }
        text.push_str("<conversation>\n");
        for entry in &self.head {
            text.push_str(&lines(entry));
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
    matches!(entry.message, Message::User(_)) && !is_note(entry)
}

/// The texts of a message that a model sees.
fn texts(parts: &[(u64, Part)]) -> Vec<&str> {
    let texts = parts.iter().filter_map(|(_, part)| part.body.as_text());
    texts
        .filter(|text| text.ignored != Some(true) && !text.text.is_empty())
        .map(|text| text.text.as_str())
        .collect()
}

/// A message as lines, each with the role of its author.
fn lines(entry: &MessageWithParts) -> String {
    if as_step(entry).is_some_and(|step| step.error.as_ref().is_some_and(|error| !error.is_abort())) {
        return String::new();
    }
    let role = if as_step(entry).is_some() { "Agent" } else { "Person" };
    let mut text = String::new();
    for (_, part) in &entry.parts {
        match &part.body {
            Body::Text(words) if words.ignored != Some(true) && !words.text.is_empty() => {
                text.push_str(&format!("[{role}]: {}\n", words.text));
            }
            Body::File(file) => text.push_str(&format!("[{role}]: {}\n", file_mention(file))),
            Body::Subtask(task) => {
                text.push_str(&format!("[{role}, to the agent {}]: {}\n", task.agent, task.prompt));
            }
            Body::Tool(tool) => {
                text.push_str(&format!("[Agent calls {}]: {}\n", tool.tool, tool.state.input()));
                text.push_str(&format!("[{} answers]: {}\n", tool.tool, answer(&tool.state)));
                for file in answer_files(&tool.state) {
                    text.push_str(&format!("{}\n", file_mention(file)));
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
    let text = answer_text(state);
    match text.char_indices().nth(SUMMARY_TOOL_CHARS_MAX) {
        None => text.to_owned(),
        Some((at, _)) => {
            format!("{} [cut: {} of {} bytes]", &text[..at], text.len() - at, text.len())
        }
    }
}

/// The parts of a prompt that is repeated after a summary, without what made it too long.
pub(crate) fn repeated_parts(parts: &[(u64, Part)]) -> Vec<Body> {
    let repeat = |(_, part): &(u64, Part)| match &part.body {
        Body::Text(text) => Some(Body::Text(text.clone().marked(REPLAY, true))),
        Body::File(file) if is_media(&file.mime) => {
            Some(Body::Text(Text::synthetic(file_mention(file)).marked(REPLAY, true)))
        }
        // The text of the file follows as a separate part.
        Body::File(_) => None,
        Body::Agent(agent) => Some(Body::Agent(agent.clone())),
        // The tasks of the prompt are done, or were refused.
        Body::Subtask(_)
        | Body::Reasoning(_)
        | Body::Tool(_)
        | Body::Compaction(_)
        | Body::Patch(_)
        | Body::Snapshot(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Retry(_) => None,
    };
    parts.iter().filter_map(repeat).collect()
}
