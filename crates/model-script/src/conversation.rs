//! Reads a request, in any protocol: the newest prompt, the number of answers after it, and the last tool output.

use super::{directives, limits::TOOL_RESULT_BYTES_MAX};
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Texts that hosts put into user messages by themselves. They are not prompts.
const REMINDER: &str = "<system-reminder>";

/// The parts of a request that the script uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Conversation {
    /// The last user prompt.
    pub(super) prompt: String,
    /// The number of answers after it.
    pub(super) step: usize,
    /// The newest tool output; bounded.
    pub(super) last_tool_result: String,
    /// Whether the request asks for a title.
    pub(super) is_title: bool,
    /// Whether the request asks for a summary. The prompt then consists of the conversation's `@summary` lines.
    pub(super) is_summary: bool,
    /// Identical for all attempts of one prompt, and different for different prompts.
    pub(super) key: u64,
}

/// Reads the body of a request. `session` identifies the conversation, as the headers name it.
pub(super) fn read(body: &Value, session: &str) -> Conversation {
    let mut conversation = Conversation::default();
    let mut prompts = 0_usize;
    for message in body["messages"].as_array().into_iter().flatten() {
        match message["role"].as_str() {
            Some("assistant") => conversation.step += 1,
            Some("user") => {
                for block in message["content"].as_array().into_iter().flatten() {
                    if block["type"] == "tool_result" {
                        conversation.last_tool_result = bounded(&text(&block["content"]));
                    }
                }
                if let Some(prompt) = prompt(&message["content"]) {
                    prompts += 1;
                    conversation.prompt = prompt;
                    conversation.step = 0;
                }
            }
            Some("tool") => conversation.last_tool_result = bounded(&text(&message["content"])),
            Some(_) | None => {}
        }
    }
    conversation.is_title = is_title(body);
    conversation.is_summary = is_summary(body);
    if conversation.is_summary {
        let lines = conversation.prompt.lines().filter_map(|line| line.split_once("@summary "));
        conversation.prompt = lines.map(|(_, directive)| directive).collect::<Vec<_>>().join("\n");
    }
    let mut hasher = DefaultHasher::new();
    let session =
        if session.is_empty() { body["prompt_cache_key"].as_str().unwrap_or_default() } else { session };
    (session, &conversation.prompt, prompts).hash(&mut hasher);
    conversation.key = hasher.finish();
    conversation
}

/// The prompt in a user message, if it has one. If a message merges several, the last one with directives counts.
fn prompt(content: &Value) -> Option<String> {
    let is_prompt = |text: &&str| !text.trim().is_empty() && !text.trim_start().starts_with(REMINDER);
    let texts: Vec<&str> = match content {
        Value::String(text) => vec![text.as_str()],
        content => {
            let blocks = content.as_array().into_iter().flatten();
            blocks
                .filter(|block| block["type"] == "text")
                .filter_map(|block| block["text"].as_str())
                .collect()
        }
    };
    let texts: Vec<&str> = texts.into_iter().filter(is_prompt).collect();
    let directed = texts.iter().rev().find(|text| directives::has_any(text));
    match directed {
        Some(text) => Some((*text).to_owned()),
        None => (!texts.is_empty()).then(|| texts.join("\n")),
    }
}

fn is_title(body: &Value) -> bool {
    let says = |text: &str| {
        let text = text.trim_start().to_lowercase();
        text.starts_with("generate a title") || text.contains("title generator")
    };
    let of_user = |message: &Value| says(&text(&message["content"]));
    let of_system = |message: &Value| message["role"] == "system" && says(&text(&message["content"]));
    let messages = || body["messages"].as_array().into_iter().flatten();
    let mut of_users = messages().filter(|message| message["role"] == "user");
    says(&text(&body["system"])) || messages().any(of_system) || of_users.next().is_some_and(of_user)
}

fn is_summary(body: &Value) -> bool {
    let says = |text: &str| text.trim_start().to_lowercase().starts_with("you sum up a conversation");
    let of_system = |message: &Value| message["role"] == "system" && says(&text(&message["content"]));
    says(&text(&body["system"])) || body["messages"].as_array().into_iter().flatten().any(of_system)
}

/// The text of a content, which is a string or blocks.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        content => {
            let blocks = content.as_array().into_iter().flatten();
            blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
    }
}

fn bounded(text: &str) -> String {
    let text = text.trim_end();
    if text.len() <= TOOL_RESULT_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(TOOL_RESULT_BYTES_MAX)])
}
