//! The calls of a model's answer, as they are stored with it before anything starts: begun, waiting for a person, or answered at once.

use crate::{
    calls::{judge::Judge, permissions::Permissions},
    conversation::{
        marks,
        structured::{self, Structured},
    },
    model::call::{AnswerEnd, FinishedCall, ModelAnswer},
    process::{clean, clock::now},
    tools::{invalid, registry, tool},
};
use convert_client::converter::TenantConverter;
use domain::{
    conversation::{
        message::{Assistant, Error},
        part::{Body, Part, Ran, Span, Tool, ToolState},
    },
    event::Event,
    policy::permission::Verdict,
    turn::call::CallId,
};
use llm::accumulate::{self, Block};
use serde_json::{Value, json};

/// Tool calls of one model answer. The worker refuses all further ones.
const TOOL_CALLS_PER_STEP_MAX: usize = 64;

/// The constraints of an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerTerms {
    pub(crate) permissions: Permissions,
    pub(crate) structured: Option<Structured>,
    /// The names of the tools that the model was offered.
    pub(crate) offered: Vec<String>,
}

/// An answer, ready to be stored.
pub(crate) struct SettledAnswer {
    pub(crate) end: AnswerEnd,
    /// Whether it has calls, also such as cannot run.
    pub(crate) has_calls: bool,
    /// The calls to run.
    pub(crate) open: Vec<CallId>,
}

/// The times of a call that starts now, and of one that also ends now.
#[derive(Debug, Clone, Copy)]
struct CallTimes {
    begun: Span,
    ended: Span,
}

/// The calls of an answer, one after the other.
struct Intents<'a> {
    terms: &'a AnswerTerms,
    converter: TenantConverter<'a>,
    message: Assistant,
    open: Vec<CallId>,
}

impl AnswerTerms {
    /// Decides about the calls of an answer.
    pub(crate) async fn settle(&self, converter: TenantConverter<'_>, answer: ModelAnswer) -> SettledAnswer {
        let ModelAnswer { end, calls, cut_off, has_text } = answer;
        let AnswerEnd { mut events, message, entry } = end;
        let has_calls = !calls.is_empty();
        let mut intents = Intents { terms: self, converter, message, open: vec![] };
        for call in calls {
            let part = intents.part(call).await;
            events.push(Event::PartUpdated { part: Box::new(part), at: now() });
        }
        let Intents { mut message, open, .. } = intents;
        if message.error.is_none() {
            let content = Content { has_text, has_calls };
            message.error = self.missing_answer_error(&message, cut_off, content);
        }
        SettledAnswer { end: AnswerEnd { events, message, entry }, has_calls, open }
    }

    /// The error of a summary without text, of an answer that was cut off, or of a missing structured answer. `None` for an
    /// answer with tool calls: the answers of those calls tell the model what happened.
    fn missing_answer_error(
        &self,
        message: &Assistant,
        cut_off: Option<Error>,
        content: Content,
    ) -> Option<Error> {
        if message.is_summary() && !content.has_text {
            return Some(Error::new("UnknownError", "The model gave no summary"));
        }
        if content.has_calls && !message.is_summary() {
            return None;
        }
        cut_off.or_else(|| self.structured.as_ref().map(Structured::missing_answer_error))
    }
}

/// What an answer has.
#[derive(Debug, Clone, Copy)]
struct Content {
    has_text: bool,
    has_calls: bool,
}

impl Intents<'_> {
    /// The part of a call with its arguments.
    async fn part(&mut self, call: FinishedCall) -> Part {
        let FinishedCall { part_id, call_id, name, block } = call;
        let times = CallTimes { begun: span(false), ended: span(true) };
        let is_answer = self.terms.structured.is_some() && name == structured::NAME;
        let tool = if is_answer { &*name } else { registry::stored_name(&name) }.to_owned();
        let is_unknown = tool == invalid::NAME;
        let refused = |input: Value, error: &str| {
            let input = if is_unknown { invalid::input(&name, error, input) } else { input };
            ToolState::Error {
                input: clean::value(input),
                error: error.to_owned(),
                metadata: None,
                time: times.ended,
            }
        };
        let state = match block {
            Block::ToolCall { input, .. } if self.open.len() >= TOOL_CALLS_PER_STEP_MAX => {
                let max = TOOL_CALLS_PER_STEP_MAX;
                refused(input, &format!("Not executed: more than {max} tool calls in one answer"))
            }
            Block::ToolCall { input, .. } => {
                let state = self.state(&name, clean::value(input), times).await;
                if !state.is_over() {
                    self.open.push(call_id.clone());
                }
                state
            }
            Block::InvalidToolCall { raw, reason, .. } => refused(arguments_of(&raw), reason.as_str()),
            Block::Text(_) | Block::Reasoning { .. } => refused(json!({}), "Not executed: no call"),
        };
        let (session_id, message_id) = (self.message.session_id.clone(), self.message.id.clone());
        Part { id: part_id, session_id, message_id, body: Body::Tool(Tool { call_id, tool, state }) }
    }

    /// The state in which a complete call is stored.
    async fn state(&mut self, name: &str, input: Value, times: CallTimes) -> ToolState {
        let refused = |input, error: &str| ToolState::Error {
            input,
            error: error.to_owned(),
            metadata: None,
            time: times.ended,
        };
        if self.message.is_summary() {
            return refused(input, "Not executed: a summary cannot call tools.");
        }
        if self.message.error.is_some() {
            return refused(input, "Not executed: the turn is over.");
        }
        if let Some(structured) = self.terms.structured.as_ref().filter(|_| name == structured::NAME) {
            return match structured.check(self.converter, &input).await {
                Ok(()) => {
                    self.message.structured = Some(input.clone());
                    captured(input, Ran::new(times.ended.start, now()))
                }
                Err(problem) => {
                    self.message.error = structured.retries_error(&problem);
                    refused(input, &problem)
                }
            };
        }
        match registry::find(name) {
            Ok(tool) => {
                let input = registry::read(tool, input);
                let permissions = &self.terms.permissions;
                let judge = Judge { permissions, agent: &self.message.agent, converter: self.converter };
                intent(judge.verdict(tool, &input).await, tool, input, times.begun)
            }
            Err(_) => invalid::answer(name, &self.terms.offered, Ran::new(times.ended.start, now())),
        }
    }
}

/// The state in which a call is stored with its answer, before anything starts: begun, waiting for a person's permission, or
/// denied.
fn intent(verdict: Verdict, tool: tool::Tool, input: Value, time: Span) -> ToolState {
    match verdict {
        // Its start stores what was allowed, and is therefore always one of its own.
        Verdict::Allow if tool == tool::Tool::Network => ToolState::Pending { input, raw: String::new() },
        Verdict::Allow => {
            ToolState::Running { input, title: None, metadata: registry::begun_metadata(tool), time }
        }
        Verdict::Ask => ToolState::Pending { input, raw: String::new() },
        Verdict::Deny => {
            let time = Span { end: Some(now()), ..time };
            ToolState::Error { input, error: DENIED.to_owned(), metadata: None, time }
        }
    }
}

/// The arguments of a call that cannot run, as far as the model wrote them.
fn arguments_of(raw: &str) -> Value {
    accumulate::arguments(raw).unwrap_or_else(|| json!({marks::UNREADABLE: raw}))
}

/// The state of a structured answer that matches the schema.
fn captured(input: Value, time: Ran) -> ToolState {
    let metadata = serde_json::Map::from_iter([("valid".to_owned(), true.into())]);
    let (output, title) = (structured::CAPTURED.to_owned().into(), "Structured Output".to_owned());
    ToolState::Completed { input, output, title, metadata, time, attachments: vec![] }
}

/// The model reads this about a call that a rule forbids. OpenCode's terminal client strikes a call through whose error has the words of
/// OpenCode's own refusals.
const DENIED: &str = "The user has specified a rule which prevents you from using this specific tool call. Do the work without \
                      it.";

/// A span that begins now, and perhaps ends now.
fn span(is_over: bool) -> Span {
    Span { start: now(), end: is_over.then(now) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_cannot_run_keeps_what_there_was_of_its_arguments() {
        for (raw, want) in [
            ("{\"a\":1}", json!({"a": 1})),
            ("", json!({})),
            ("{\"a\":\"long te", json!({"INVALID_JSON": "{\"a\":\"long te"})),
            ("[1]", json!({"INVALID_JSON": "[1]"})),
        ] {
            assert_eq!(arguments_of(raw), want);
        }
        let unknown = invalid::input(&"x".repeat(200), "cut off", arguments_of("{\"a"));
        let name = "x".repeat(80);
        assert_eq!(unknown, json!({"tool": name, "error": "cut off", "arguments": {"INVALID_JSON": "{\"a"}}));
        assert!(marks::is_unreadable(&unknown));
    }
}
