//! The model call of a step: converts the provider's stream to parts. Text goes to subscribers at once, to Postgres in small
//! chunks, and as a whole part when its block ends.
// Continues in `record`, which stores the parts.

use super::{
    draft::{self, Draft},
    failure::{self, cut_off},
    gate::{self, Bill, CallPlan, OpenCall},
};
use crate::{
    calls::permissions::Permissions,
    conversation::{
        marks,
        structured::{self, Structured},
    },
    lower::request::provider_metadata,
    process::{clean, clock::now, deps::Deps},
    record::{Record, WriteError},
    tools::{invalid, registry, tool},
};
use domain::{
    conversation::{
        message::{Assistant, Error, Message},
        part::{Body, Part, Ran, Span, Tool, ToolState},
    },
    event::Event,
    ids::{PartId, TenantId, Timestamp},
    policy::permission::Verdict,
    turn::{outcome::ANSWER_EMPTY, signal::Signal},
};
use llm::{
    accumulate::{self, Accumulator, Block},
    event::{Event as StreamEvent, Finish},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};
use store::{log::record::Progress, session::tree::ledger::Entry};
use tokio::time::Instant;

/// Tool calls of one model answer. The worker refuses all further ones.
const TOOL_CALLS_PER_STEP_MAX: usize = 64;

/// Output tokens of an answer that only ends: some providers count the mark of the end.
const END_TOKENS_MAX: u64 = 1;

/// The open model call of a step or a summary. Dropping it closes the connection.
pub(crate) struct ModelCall {
    deps: Arc<Deps>,
    call: OpenCall,
    terms: AnswerTerms,
    message: Assistant,
    draft: Draft,
    answer: Accumulator,
    end: Option<AnswerEnd>,
}

/// What happens to an open call.
#[derive(Debug)]
pub(crate) enum ModelEvent {
    /// The model said something, or the call failed.
    Answer(Result<StreamEvent, llm::error::Error>),
    /// The text so far has left this process: more can be sent.
    Departed,
}

/// The end of an answer without tool calls. It is stored with the end of its step, which follows at once.
#[derive(Debug)]
pub(crate) struct AnswerEnd {
    /// The parts that are not stored yet.
    pub(crate) events: Vec<Event>,
    pub(crate) message: Assistant,
    /// The cost of the call, if the provider reported usage.
    pub(crate) entry: Option<Entry>,
}

/// The constraints of a call's answer.
#[derive(Debug, Clone)]
pub(crate) struct AnswerTerms {
    /// The tenant for which the calls of the answer are checked.
    pub(crate) tenant: TenantId,
    pub(crate) permissions: Permissions,
    pub(crate) structured: Option<Structured>,
    /// The names of the tools that the model was offered.
    pub(crate) offered: Vec<String>,
    pub(crate) attempt: Attempt,
}

/// What decides whether a failed attempt is repeated.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attempt {
    /// Whether the request has pictures or documents.
    pub(crate) has_media: bool,
    /// Whether the model may have nothing to say: it reads the answers of its calls.
    pub(crate) may_be_empty: bool,
    /// Whether an earlier attempt at this step had an empty answer.
    pub(crate) was_empty: bool,
}

/// The result of a call that ended early.
#[derive(Debug, Default)]
pub(crate) struct PartialAnswer {
    /// The open parts, as far as they were received.
    pub(crate) events: Vec<Event>,
    /// The cost of the call, if the provider reported usage.
    pub(crate) entry: Option<Entry>,
}

/// The times of a tool call that starts now, and of one that also ends now.
#[derive(Debug, Clone, Copy)]
struct CallTimes {
    begun: Span,
    ended: Span,
}

impl AnswerEnd {
    /// Stores it without the end of its step.
    pub(crate) async fn store(self, record: &mut Record) -> Result<(), WriteError> {
        record.write_answer(self.events, Message::Assistant(Box::new(self.message)), self.entry).await
    }
}

impl ModelCall {
    /// Sends a call through the gate. [`ModelCall::next`] returns the answer, which fills `message`.
    pub(crate) fn start(deps: &Arc<Deps>, plan: CallPlan, message: Assistant, terms: AnswerTerms) -> Self {
        Self {
            deps: Arc::clone(deps),
            call: gate::open(deps, plan, &Bill::default()),
            terms,
            message,
            draft: Draft::default(),
            answer: Accumulator::default(),
            end: None,
        }
    }

    /// The end of the answer, if it has no tool calls and is over.
    pub(crate) fn into_end(self) -> Option<AnswerEnd> {
        self.end
    }

    /// Waits for the next event of the answer, or until more of its text can be sent. Cancel-safe: an event that was not returned stays in the stream.
    pub(crate) async fn next(&mut self) -> ModelEvent {
        tokio::select! {
            biased;
            event = self.call.next() => ModelEvent::Answer(event),
            () = self.draft.departed() => ModelEvent::Departed,
        }
    }

    /// When collected text must be sent or stored.
    pub(crate) fn next_flush(&self) -> Option<Instant> {
        self.draft.next_flush()
    }

    /// Sends and stores collected text that has waited long enough.
    pub(crate) async fn flush(&mut self, record: &mut Record) -> Result<(), WriteError> {
        let now = Instant::now();
        if self.draft.has_late_end(now) {
            let ended = self.draft.take_ended(&self.message).into_iter().map(part_updated).collect();
            record.write(ended, Progress::None).await?;
        }
        self.draft.flush(record, &self.message.id, now).await
    }

    /// Handles an event of the answer. Returns a signal for the turn once the answer is over.
    pub(crate) async fn take(
        &mut self,
        event: Result<StreamEvent, llm::error::Error>,
        record: &mut Record,
    ) -> Result<Option<Signal>, WriteError> {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Ok(Some(self.failure(&error))),
        };
        self.answer.push(&event);
        match event {
            StreamEvent::Started { .. } => {}
            StreamEvent::TextStart { index } => self.open(index, draft::Kind::Text, record).await?,
            StreamEvent::ReasoningStart { index } => self.open(index, draft::Kind::Reasoning, record).await?,
            StreamEvent::ToolStart { index, id, name } => {
                let call_id = self.unique(&domain::text::without_nul(&id));
                let name = domain::text::without_nul(&name).into_owned();
                self.open(index, draft::Kind::Tool { call_id, name }, record).await?;
            }
            StreamEvent::Text { index, delta } | StreamEvent::Reasoning { index, delta } => {
                self.draft.push(index, &domain::text::without_nul(&delta));
                self.draft.flush(record, &self.message.id, Instant::now()).await?;
            }
            StreamEvent::ReasoningEnd { index, signature, redacted, details } => {
                let data = provider_metadata(signature.as_deref(), redacted.as_deref(), details.as_ref());
                self.draft.set_metadata(index, data.map(clean::map));
                self.end(index, record);
            }
            StreamEvent::ToolArguments { .. } => {}
            StreamEvent::BlockEnd { index, details } => {
                let data = provider_metadata(None, None, details.as_ref());
                self.draft.set_metadata(index, data.map(clean::map));
                self.end(index, record);
            }
            // The gate records the usage.
            StreamEvent::Usage(_) => {}
            StreamEvent::Finished { reason, .. } => return self.finish(reason, record).await.map(Some),
        }
        Ok(None)
    }

    /// Ends a call early, because it failed or because the step is being stopped.
    pub(crate) fn abandon(mut self, record: &Record) -> PartialAnswer {
        self.draft.send_rest(record, &self.message.id);
        let events = self.draft.end_all(&self.message, now()).into_iter().map(part_updated).collect();
        PartialAnswer { events, entry: self.call.entry() }
    }

    async fn open(&mut self, index: u32, kind: draft::Kind, record: &mut Record) -> Result<(), WriteError> {
        // Send the text of earlier parts first: clients show parts in the order in which they begin.
        self.draft.send_rest(record, &self.message.id);
        let opening = draft::Opening { index, id: self.deps.id(PartId::make), kind, now: now() };
        let ended = self.draft.take_ended(&self.message);
        let part = self.draft.open(opening, &self.message);
        record.write(ended.into_iter().chain([part]).map(part_updated).collect(), Progress::None).await
    }

    /// Notes the end of a text or reasoning block. Its part is stored with what follows: the next block, or the end of the answer.
    fn end(&mut self, index: u32, record: &Record) {
        self.draft.send_rest(record, &self.message.id);
        self.draft.end(index, now());
    }

    /// Makes the provider's id of a call unique in the answer.
    fn unique(&self, id: &str) -> String {
        let ids: BTreeSet<&str> = self.draft.call_ids().collect();
        let mut unique = if id.is_empty() { "call".to_owned() } else { id.to_owned() };
        while ids.contains(unique.as_str()) {
            unique.push('x');
        }
        unique
    }

    /// Whether the model ended its answer without having said or thought anything.
    fn is_empty(&self, reason: Finish) -> bool {
        let is_over = matches!(reason, Finish::Stop | Finish::Other);
        let tokens = self.call.entry().map(|entry| entry.tokens).unwrap_or_default();
        let is_silent = !self.draft.has_text() && !self.draft.has_tools();
        is_over
            && is_silent
            && !self.message.is_summary()
            && tokens.output + tokens.reasoning <= END_TOKENS_MAX
    }

    async fn finish(&mut self, reason: Finish, record: &mut Record) -> Result<Signal, WriteError> {
        let Attempt { may_be_empty, was_empty, .. } = self.terms.attempt;
        if !may_be_empty && self.is_empty(reason) {
            self.measure(ANSWER_EMPTY);
            return Ok(Signal::Failed(failure::empty(was_empty)));
        }
        self.draft.send_rest(record, &self.message.id);
        let now = now();
        let mut events: Vec<Event> =
            self.draft.end_all(&self.message, now).into_iter().map(part_updated).collect();
        let (tools, open) = self.tool_parts().await;
        events.extend(tools.into_iter().map(part_updated));
        self.message.finish = Some(reason.as_str().to_owned());
        // The message names the call: whichever worker closes the step later charges the same entry.
        let entry = self.call.entry().map(|entry| Entry { id: self.message.id.to_string(), ..entry });
        if let Some(entry) = &entry {
            (self.message.tokens, self.message.cost) = (entry.tokens, entry.cost);
        }
        if self.message.error.is_none() {
            self.message.error = self.missing_answer_error(reason);
        }
        let end = AnswerEnd { events, message: self.message.clone(), entry };
        if self.draft.has_tools() {
            end.store(record).await?;
        } else {
            self.end = Some(end);
        }
        self.measure("ok");
        Ok(Signal::Answered(open))
    }

    /// The parts of the tool calls with their arguments, and the ids of the calls to run.
    async fn tool_parts(&mut self) -> (Vec<Part>, Vec<String>) {
        let blocks = std::mem::take(&mut self.answer).finish().blocks;
        let (mut parts, mut open) = (vec![], vec![]);
        let drafts: Vec<_> = self.draft.blocks().map(|(id, kind)| (id.clone(), kind.clone())).collect();
        for ((part_id, kind), block) in drafts.into_iter().zip(blocks) {
            let draft::Kind::Tool { call_id, name } = &kind else { continue };
            let times = CallTimes { begun: span(None), ended: span(Some(now())) };
            let is_answer = self.terms.structured.is_some() && name == structured::NAME;
            let tool = if is_answer { name } else { registry::stored_name(name) }.to_owned();
            let is_unknown = tool == invalid::NAME;
            let refused = |input: Value, error: &str| {
                let input = if is_unknown { invalid::input(name, error, input) } else { input };
                ToolState::Error {
                    input: clean::value(input),
                    error: error.to_owned(),
                    metadata: None,
                    time: times.ended,
                }
            };
            let state = match block {
                Block::ToolCall { input, .. } if open.len() >= TOOL_CALLS_PER_STEP_MAX => {
                    let max = TOOL_CALLS_PER_STEP_MAX;
                    refused(input, &format!("Not executed: more than {max} tool calls in one answer"))
                }
                Block::ToolCall { input, .. } => {
                    let state = self.tool_state(name, clean::value(input), times).await;
                    if !state.is_over() {
                        open.push(call_id.clone());
                    }
                    state
                }
                Block::InvalidToolCall { raw, reason, .. } => refused(arguments_of(&raw), reason.as_str()),
                Block::Text(_) | Block::Reasoning { .. } => continue,
            };
            let tool = Tool { call_id: call_id.clone(), tool, state };
            parts.push(draft::part(part_id, &self.message, Body::Tool(tool)));
        }
        (parts, open)
    }

    /// The state in which a complete call is stored.
    async fn tool_state(&mut self, name: &str, input: Value, times: CallTimes) -> ToolState {
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
            return match structured.check(self.deps.converter.of(self.terms.tenant), &input).await {
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
                let converter = self.deps.converter.of(self.terms.tenant);
                let verdict =
                    self.terms.permissions.judge(&self.message.agent, converter, tool, &input).await;
                intent(verdict, tool, input, times.begun)
            }
            Err(_) => invalid::answer(name, &self.terms.offered, Ran::new(times.ended.start, now())),
        }
    }

    /// The error of a summary without text, of an answer that was cut off, or of a missing structured answer. `None` for an
    /// answer with tool calls: the answers of those calls tell the model what happened.
    fn missing_answer_error(&self, reason: Finish) -> Option<Error> {
        if self.message.is_summary() && !self.draft.has_text() {
            return Some(Error::new("UnknownError", "The model gave no summary"));
        }
        if self.draft.has_tools() && !self.message.is_summary() {
            return None;
        }
        cut_off(reason).or_else(|| self.terms.structured.as_ref().map(Structured::missing_answer_error))
    }

    fn failure(&self, error: &llm::error::Error) -> Signal {
        self.measure(error.kind.as_str());
        tracing::warn!(parent: self.call.span(), error.code = error.kind.as_str(), "a model call failed: {error}");
        let provider_id = &self.message.model.model.provider_id;
        // Without them, the next attempt can succeed.
        let is_refusal = self.terms.attempt.has_media && error.is_about_media();
        Signal::Failed(if is_refusal {
            failure::media(error, provider_id)
        } else {
            failure::of(error, provider_id)
        })
    }

    fn measure(&self, outcome: &'static str) {
        metrics::counter!("flotilla_model_calls_total", "outcome" => outcome).increment(1);
        metrics::histogram!("flotilla_model_call_seconds").record(self.call.begun().elapsed().as_secs_f64());
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

fn span(end: Option<Timestamp>) -> Span {
    Span { start: now(), end }
}

fn part_updated(part: Part) -> Event {
    Event::PartUpdated { part: Box::new(part), at: now() }
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
