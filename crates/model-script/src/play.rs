//! Selects the step for a conversation and builds its answer.

use super::conversation::Conversation;
use super::directives;
use super::script::{FaultKind, Item, Script, Step, Usage};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// The answer without a script and without directives.
const INTRODUCTION: &str = "I am Flotilla's scripted model, not a real one: no model key is configured. To use a real \
    model, set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or add a [[provider]] to flotilla.toml, and start \
    again.";

/// The answer to a request for a summary.
const SUMMARY: &str = "## Objective\nA scripted summary.";

/// Placeholder for the newest tool output.
const LAST_TOOL_RESULT: &str = "{{last_tool_result}}";

/// Starts a line with the answer to a request for a title.
const TITLE: &str = "@title ";

/// Number of words in a title. Further ones are left out.
const TITLE_WORDS_MAX: usize = 6;

/// One answer, independent of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScriptedAnswer {
    /// Unique to the conversation and the step, and identical for every attempt.
    pub(super) id: String,
    pub(super) model: String,
    pub(super) pieces: Vec<Piece>,
    /// `stop`, `tool-calls`, `length`, `content-filter` or the provider's own word.
    pub(super) finish: String,
    pub(super) usage: Usage,
    pub(super) chunk_chars: usize,
    pub(super) delay_ms: u64,
}

/// A block of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Reasoning(String),
    Tool { id: String, name: String, arguments: String },
}

/// The attempts of steps with faults. Bounded: the oldest are dropped.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    counts: HashMap<(u64, usize), u64>,
    order: VecDeque<(u64, usize)>,
}

impl Attempts {
    /// Returns the number of earlier attempts and counts this one.
    pub(super) fn count(&mut self, key: u64, step: usize) -> u64 {
        let entry = (key, step);
        let count = self.counts.entry(entry).or_insert_with(|| {
            self.order.push_back(entry);
            0
        });
        let before = *count;
        *count += 1;
        if self.order.len() > super::limits::COUNTERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        before
    }
}

/// The current step of `conversation`.
///
/// # Errors
/// A sentence about an invalid directive.
pub(super) fn step(script: &Script, conversation: &Conversation) -> Result<Step, String> {
    if conversation.is_title {
        let lines = conversation.prompt.lines().filter_map(|line| line.trim_start().strip_prefix(TITLE));
        let directed = directives::parse(&lines.collect::<Vec<_>>().join("\n"))?;
        let mut step = directed.into_iter().next().unwrap_or_default();
        if step.items.is_empty() {
            step.items.push(Item::Text(title(&conversation.prompt)));
        }
        return Ok(step);
    }
    let directed = directives::parse(&conversation.prompt)?;
    if conversation.is_summary {
        let mut step = directed.into_iter().next().unwrap_or_default();
        if step.items.is_empty() {
            step.items.push(Item::Text(SUMMARY.to_owned()));
        }
        return Ok(step);
    }
    let steps = match (directed.as_slice(), script.find(&conversation.prompt)) {
        ([], None) => return Ok(Step::text(INTRODUCTION)),
        ([], Some(steps)) => steps,
        (directed, _) => directed,
    };
    Ok(steps.get(conversation.step).cloned().unwrap_or_else(|| Step::text(&script.closing)))
}

/// The fault for this attempt of `step`.
pub(super) fn fault<'a>(
    step: &'a Step,
    conversation: &Conversation,
    attempts: &mut Attempts,
) -> Option<&'a FaultKind> {
    if step.faults.is_empty() {
        return None;
    }
    step.fault(attempts.count(conversation.key, conversation.step))
}

/// The answer of `step` in `conversation`. `body` is the request, for the model's name and a realistic token count.
pub(super) fn answer(step: &Step, conversation: &Conversation, body: &Value) -> ScriptedAnswer {
    let id = format!("{:016x}{}", conversation.key, conversation.step);
    let piece = |(at, item): (usize, &Item)| match item {
        Item::Text(text) => Piece::Text(text.replace(LAST_TOOL_RESULT, &conversation.last_tool_result)),
        Item::Reasoning(text) => {
            Piece::Reasoning(text.replace(LAST_TOOL_RESULT, &conversation.last_tool_result))
        }
        Item::Tool { name, input } => {
            Piece::Tool { id: format!("call_{id}_{at}"), name: name.clone(), arguments: input.to_string() }
        }
    };
    let pieces: Vec<Piece> = step.items.iter().enumerate().map(piece).collect();
    let has_tools = pieces.iter().any(|piece| matches!(piece, Piece::Tool { .. }));
    let usual = if has_tools { "tool-calls" } else { "stop" };
    ScriptedAnswer {
        usage: step.usage.unwrap_or_else(|| usage(&pieces, body)),
        finish: step.finish.clone().unwrap_or_else(|| usual.to_owned()),
        model: body["model"].as_str().unwrap_or("scripted").to_owned(),
        chunk_chars: step.chunk_chars,
        delay_ms: step.delay_ms,
        id,
        pieces,
    }
}

/// A token is about four characters.
fn usage(pieces: &[Piece], body: &Value) -> Usage {
    let count = |is_reasoning: bool| {
        let chars = pieces.iter().map(|piece| match piece {
            Piece::Text(text) if !is_reasoning => text.len(),
            Piece::Tool { arguments, .. } if !is_reasoning => arguments.len(),
            Piece::Reasoning(text) if is_reasoning => text.len(),
            Piece::Text(_) | Piece::Tool { .. } | Piece::Reasoning(_) => 0,
        });
        tokens(chars.sum())
    };
    let prompt = body["messages"].to_string().len() + body["system"].to_string().len();
    Usage { input: tokens(prompt), output: count(false), reasoning: count(true), ..Usage::default() }
}

fn tokens(chars: usize) -> u64 {
    u64::try_from(chars.div_ceil(4)).unwrap_or(u64::MAX)
}

fn title(prompt: &str) -> String {
    let words: Vec<&str> = prompt
        .lines()
        .filter(|line| !directives::has_any(line) && !line.trim_start().starts_with(TITLE))
        .filter(|line| !line.to_lowercase().starts_with("generate a title"))
        .flat_map(str::split_whitespace)
        .take(TITLE_WORDS_MAX)
        .collect();
    if words.is_empty() { "Scripted session".to_owned() } else { words.join(" ") }
}
