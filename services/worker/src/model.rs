//! One model call: the provider's stream in, parts out. Text goes to watchers at once, to Postgres in small chunks, and
//! as a whole part when its block ends.
// Continues in `record`, which stores what is said.

mod draft;

use crate::{clean, clock::now, deps::Deps, lower, record::Record, record::Stopped, rights::Rights};
use crate::{structured, structured::Structured, tools};
use domain::{
    event::Event,
    ids::PartId,
    limits,
    message::{Assistant, Error, ErrorData, Message},
    money::Tokens,
    part::{Body, Part, Ran, Tool, ToolState},
    permission::Verdict,
    turn::{Failure, Input},
};
use draft::Draft;
use futures::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _};
use llm::{
    accumulate::{Accumulator, Block},
    error::ErrorKind,
    event::{Event as Said, Finish},
    model::Model,
};
use serde_json::json;
use std::{collections::BTreeSet, pin::Pin, sync::Arc};
use store::log::record::Progress;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

type Answers = Pin<Box<dyn Stream<Item = Result<Said, llm::error::Error>> + Send>>;

/// An open call. Dropping it closes the connection.
pub(crate) struct ModelCall {
    deps: Arc<Deps>,
    stream: Answers,
    model: Model,
    asked: Asked,
    message: Assistant,
    draft: Draft,
    answer: Accumulator,
    tokens: Tokens,
    span: Span,
    begun: Instant,
}

/// What the answer may do, and must be.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) rights: Rights,
    pub(crate) structured: Option<Structured>,
    /// The names of the tools that the model was told of.
    pub(crate) offered: Vec<String>,
}

/// What a loop's writer needs while the call goes on.
pub(crate) struct Writer<'a> {
    pub(crate) record: &'a mut Record,
    pub(crate) conversation: &'a mut crate::conversation::Conversation,
}

impl Writer<'_> {
    async fn write(&mut self, events: Vec<Event>) -> Result<(), Stopped> {
        self.record.write(self.conversation, events, Progress::None).await
    }
}

impl ModelCall {
    /// Sends `request`; the answer comes through [`ModelCall::next`].
    pub(crate) fn start(
        deps: &Arc<Deps>,
        provider: llm::provider::Provider,
        model: Model,
        request: llm::request::Request,
        (message, asked): (Assistant, Asked),
    ) -> Self {
        let span = chat_span(&provider, &model);
        let models = deps.models.clone();
        let headers = vec![("x-session-id".to_owned(), message.session_id.to_string())];
        let called = model.clone();
        let opened = async move { models.stream(&provider, &called, request, headers).await };
        // Boxed on its own: the question, and the room for sending it, are given back when the answer begins.
        let opened = Box::pin(opened.instrument(span.clone()));
        Self {
            deps: Arc::clone(deps),
            stream: Box::pin(opened.into_stream().try_flatten()),
            model,
            asked,
            message,
            draft: Draft::default(),
            answer: Accumulator::default(),
            tokens: Tokens::default(),
            span,
            begun: Instant::now(),
        }
    }

    /// Waits for the next piece of the answer. Cancel-safe: what was not given is still in the stream.
    pub(crate) async fn next(&mut self) -> Option<Result<Said, llm::error::Error>> {
        self.stream.next().await
    }

    /// When gathered text must be sent or stored.
    pub(crate) fn next_flush(&self) -> Option<Instant> {
        self.draft.next_flush()
    }

    /// Sends and stores gathered text whose time has come.
    pub(crate) async fn flush(&mut self, writer: &mut Writer<'_>) -> Result<(), Stopped> {
        self.draft.flush(writer.record, &self.message.id, Instant::now()).await
    }

    /// Takes a piece of the answer; gives what the turn must know, once the answer is over.
    pub(crate) async fn take(
        &mut self,
        said: Option<Result<Said, llm::error::Error>>,
        writer: &mut Writer<'_>,
    ) -> Result<Option<Input>, Stopped> {
        let said = match said {
            Some(Ok(said)) => said,
            Some(Err(error)) => return Ok(Some(self.failed(&error))),
            None => {
                let error = llm::error::Error::new(ErrorKind::Truncated, "the stream ended without an end");
                return Ok(Some(self.failed(&error)));
            }
        };
        self.answer.push(&said);
        match said {
            Said::Started { .. } => {}
            Said::TextStart { index } => self.open(index, draft::Kind::Text, writer).await?,
            Said::ReasoningStart { index } => self.open(index, draft::Kind::Reasoning, writer).await?,
            Said::ToolStart { index, id, name } => {
                let call_id = self.unique(&domain::text::without_nul(&id));
                let name = domain::text::without_nul(&name).into_owned();
                self.open(index, draft::Kind::Tool { call_id, name }, writer).await?;
            }
            Said::Text { index, delta } | Said::Reasoning { index, delta } => {
                self.draft.push(index, &domain::text::without_nul(&delta));
                self.draft.flush(writer.record, &self.message.id, Instant::now()).await?;
            }
            Said::ReasoningEnd { index, signature, redacted, details } => {
                let data =
                    lower::reasoning_metadata(signature.as_deref(), redacted.as_deref(), details.as_ref());
                self.draft.set_metadata(index, data.map(clean::map));
                self.end(index, writer).await?;
            }
            Said::ToolArguments { .. } => {}
            Said::BlockEnd { index } => self.end(index, writer).await?,
            Said::Usage(tokens) => self.tokens = tokens,
            Said::Finished { reason, .. } => return self.finished(reason, writer).await.map(Some),
        }
        Ok(None)
    }

    /// What is left of a call that is stopped: its open parts, as far as they came.
    pub(crate) fn abandon(mut self, record: &Record) -> Vec<Event> {
        self.draft.send_rest(record, &self.message.id);
        self.draft.end_all(&self.message, now()).into_iter().map(updated).collect()
    }

    async fn open(&mut self, index: u32, kind: draft::Kind, writer: &mut Writer<'_>) -> Result<(), Stopped> {
        // What came before goes out before: a reader shows parts in the order in which they begin.
        self.draft.send_rest(writer.record, &self.message.id);
        let id = self.deps.id(PartId::make);
        let part = self.draft.open(index, id, kind, &self.message, now());
        writer.write(vec![updated(part)]).await
    }

    /// Stores a text or a reasoning that is whole.
    async fn end(&mut self, index: u32, writer: &mut Writer<'_>) -> Result<(), Stopped> {
        self.draft.send_rest(writer.record, &self.message.id);
        match self.draft.end(index, &self.message, now()) {
            Some(part) => writer.write(vec![updated(part)]).await,
            None => Ok(()),
        }
    }

    /// Providers name calls; two calls of one answer must not have one name.
    fn unique(&self, id: &str) -> String {
        let known: BTreeSet<&str> = self.draft.call_ids().collect();
        let mut unique = if id.is_empty() { "call".to_owned() } else { id.to_owned() };
        while known.contains(unique.as_str()) {
            unique.push('x');
        }
        unique
    }

    async fn finished(&mut self, reason: Finish, writer: &mut Writer<'_>) -> Result<Input, Stopped> {
        self.draft.send_rest(writer.record, &self.message.id);
        let now = now();
        let mut events: Vec<Event> =
            self.draft.end_all(&self.message, now).into_iter().map(updated).collect();
        let (tools, open) = self.tool_parts();
        events.extend(tools.into_iter().map(updated));
        self.message.finish = Some(reason.as_str().to_owned());
        self.message.tokens = self.tokens;
        self.message.cost = self.model.price.cost(&self.tokens);
        if self.message.error.is_none() {
            self.message.error = self.lacking(reason);
        }
        events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(self.message.clone())))));
        writer.write(events).await?;
        self.span.record("gen_ai.response.finish_reasons", reason.as_str());
        self.span.record("gen_ai.usage.input_tokens", self.tokens.prompt());
        self.span.record("gen_ai.usage.output_tokens", self.tokens.output + self.tokens.reasoning);
        self.measure("ok");
        Ok(Input::Answered(open))
    }

    /// The tool calls with their arguments, and which of them are to run.
    fn tool_parts(&mut self) -> (Vec<Part>, Vec<String>) {
        let blocks = std::mem::take(&mut self.answer).finish().blocks;
        let (mut parts, mut open) = (vec![], vec![]);
        let drafts: Vec<_> = self.draft.blocks().map(|(id, kind)| (id.clone(), kind.clone())).collect();
        for ((part_id, kind), block) in drafts.into_iter().zip(blocks) {
            let draft::Kind::Tool { call_id, name } = &kind else { continue };
            let (begun, time) = (span(None), span(Some(now())));
            let refused = |error: String| ToolState::Error { input: json!({}), error, metadata: None, time };
            let state = match block {
                _ if open.len() >= limits::TOOL_CALLS_PER_STEP_MAX => refused(format!(
                    "Not executed: more than {} tool calls in one answer",
                    limits::TOOL_CALLS_PER_STEP_MAX
                )),
                Block::ToolCall { input, .. } => {
                    let state = self.called(name, clean::value(input), (begun, time));
                    if !state.is_over() {
                        open.push(call_id.clone());
                    }
                    state
                }
                Block::InvalidToolCall { reason, .. } => refused(reason.as_str().to_owned()),
                Block::Text(_) | Block::Reasoning { .. } => continue,
            };
            let is_answer = self.asked.structured.is_some() && name == structured::NAME;
            let tool = if is_answer { name } else { tools::stored_name(name) }.to_owned();
            let tool = Tool { call_id: call_id.clone(), tool, state };
            parts.push(draft::part(part_id, &self.message, Body::Tool(tool)));
        }
        (parts, open)
    }

    /// How a whole call is stored.
    fn called(
        &mut self,
        name: &str,
        input: serde_json::Value,
        (begun, ended): (domain::part::Span, domain::part::Span),
    ) -> ToolState {
        let refused = |input, error: &str| ToolState::Error {
            input,
            error: error.to_owned(),
            metadata: None,
            time: ended,
        };
        if self.message.is_summary() {
            return refused(input, "Not executed: whoever sums up calls no tools.");
        }
        if self.message.error.is_some() {
            return refused(input, "Not executed: the turn is over.");
        }
        if let Some(structured) = self.asked.structured.as_ref().filter(|_| name == structured::NAME) {
            return match structured.check(&input) {
                Ok(()) => {
                    self.message.structured = Some(input.clone());
                    captured(input, Ran::new(ended.start, now()))
                }
                Err(problem) => {
                    self.message.error = structured.gives_up(&problem);
                    refused(input, &problem)
                }
            };
        }
        match tools::find(name) {
            Ok(tool) => intent(self.asked.rights.verdict(&self.message.agent, tool, &input), input, begun),
            Err(_) => tools::invalid::answered(name, &self.asked.offered, Ran::new(ended.start, now())),
        }
    }

    /// What is wrong with an answer as a whole. Tool calls of one that is cut off tell the model so themselves.
    fn lacking(&self, reason: Finish) -> Option<Error> {
        if self.message.is_summary() && !self.draft.has_text() {
            return Some(Error::new("UnknownError", "The model gave no summary"));
        }
        if self.draft.has_tools() && !self.message.is_summary() {
            return None;
        }
        cut_off(reason).or_else(|| self.asked.structured.as_ref().map(Structured::missing))
    }

    fn failed(&mut self, error: &llm::error::Error) -> Input {
        self.span.record("error.code", error.kind.as_str());
        self.measure(error.kind.as_str());
        tracing::warn!(parent: &self.span, error.code = error.kind.as_str(), "a model call failed: {error}");
        Input::Failed(Failure {
            error: session_error(error, &self.message.model.model.provider_id),
            retryable: error.is_retryable(),
            retry_after_ms: error.retry_after_ms,
        })
    }

    fn measure(&self, outcome: &'static str) {
        metrics::counter!("flotilla_model_calls_total", "outcome" => outcome).increment(1);
        metrics::histogram!("flotilla_model_call_seconds").record(self.begun.elapsed().as_secs_f64());
        count_tokens(&self.tokens);
    }
}

/// The span of a model call, under the names of the OpenTelemetry conventions for generative AI beside our own.
pub(crate) fn chat_span(provider: &llm::provider::Provider, model: &Model) -> Span {
    tracing::info_span!(
        "chat",
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = %provider.id,
        gen_ai.request.model = %model.id,
        gen_ai.response.finish_reasons = tracing::field::Empty,
        gen_ai.usage.input_tokens = tracing::field::Empty,
        gen_ai.usage.output_tokens = tracing::field::Empty,
        error.code = tracing::field::Empty,
    )
}

/// Adds what a model call used to the metrics.
pub(crate) fn count_tokens(tokens: &Tokens) {
    for (kind, count) in [
        ("input", tokens.input),
        ("output", tokens.output),
        ("reasoning", tokens.reasoning),
        ("cache_read", tokens.cache_read),
        ("cache_write", tokens.cache_write),
    ] {
        metrics::counter!("flotilla_model_tokens_total", "kind" => kind).increment(count);
    }
}

/// How a call is stored with the answer that wants it, before anything starts: as begun, as one that a person must allow
/// first, or as refused.
fn intent(verdict: Verdict, input: serde_json::Value, time: domain::part::Span) -> ToolState {
    match verdict {
        Verdict::Allow => ToolState::Running { input, title: None, metadata: None, time },
        Verdict::Ask => ToolState::Pending { input, raw: String::new() },
        Verdict::Deny => {
            let time = domain::part::Span { end: Some(now()), ..time };
            ToolState::Error { input, error: DENIED.to_owned(), metadata: None, time }
        }
    }
}

/// A structured answer that fits.
fn captured(input: serde_json::Value, time: Ran) -> ToolState {
    let metadata = serde_json::Map::from_iter([("valid".to_owned(), true.into())]);
    let (output, title) = (structured::TAKEN.to_owned().into(), "Structured Output".to_owned());
    ToolState::Completed { input, output, title, metadata, time, attachments: vec![] }
}

/// What the model is told of a call that a rule forbids.
const DENIED: &str = "A rule of this session forbids this call. Do the work without it.";

fn span(end: Option<domain::ids::Timestamp>) -> domain::part::Span {
    domain::part::Span { start: now(), end }
}

fn updated(part: Part) -> Event {
    Event::PartUpdated { part: Box::new(part), at: now() }
}

/// An answer that is cut off is no answer, unless its tool calls tell the model so themselves.
fn cut_off(reason: Finish) -> Option<Error> {
    match reason {
        Finish::Length => Some(Error::new(
            "MessageOutputLengthError",
            "The model's answer reached its longest length and was cut off",
        )),
        Finish::ContentFilter => {
            Some(Error::new("ContentFilterError", "The provider's content filter stopped the answer"))
        }
        Finish::Stop | Finish::ToolCalls | Finish::Unknown => None,
    }
}

/// A provider's error under OpenCode's names.
fn session_error(error: &llm::error::Error, provider_id: &str) -> Error {
    let name = match error.kind {
        ErrorKind::Auth => "ProviderAuthError",
        ErrorKind::Overflow => "ContextOverflowError",
        ErrorKind::ContentFilter => "ContentFilterError",
        ErrorKind::NotFound
        | ErrorKind::RateLimited
        | ErrorKind::Quota
        | ErrorKind::Overloaded
        | ErrorKind::Server
        | ErrorKind::Invalid
        | ErrorKind::TooLarge
        | ErrorKind::Transport
        | ErrorKind::Truncated
        | ErrorKind::Timeout
        | ErrorKind::Protocol => "APIError",
    };
    Error {
        name: name.to_owned(),
        data: ErrorData {
            message: domain::text::without_nul(&error.message).into_owned(),
            status_code: error.status,
            is_retryable: Some(error.is_retryable()),
            provider_id: Some(provider_id.to_owned()),
            retries: None,
        },
    }
}
