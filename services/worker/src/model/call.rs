//! The model call of a step: converts the provider's stream to parts. Text goes to subscribers at once, to Postgres in small
//! chunks, and as a whole part when its block ends.
// Continues in `record`, which stores the parts.

use super::{
    answer_draft::{self, AnswerDraft},
    failure::{self, cut_off},
    gate::{self, Bill, CallPlan, OpenCall},
};
use crate::{
    lower::request::provider_metadata,
    process::{clean, clock::now, deps::Deps},
    record::{Record, Write, WriteError},
};
use domain::{
    conversation::{
        message::{Assistant, Error, Message},
        part::Part,
    },
    event::Event,
    ids::PartId,
    turn::{outcome::ANSWER_EMPTY, signal::ModelFailure},
};
use llm::{
    accumulate::{Accumulator, Block},
    event::{Event as StreamEvent, Finish},
};
use std::{collections::BTreeSet, sync::Arc};
use store::{log::change::ChangeBody, rows::ledger::LedgerEntry};
use tokio::time::Instant;

/// Output tokens of an answer that only ends: some providers count the mark of the end.
const END_TOKENS_MAX: u64 = 1;

/// The open model call of a step or a summary. Dropping it closes the connection.
pub(crate) struct ModelCall {
    deps: Arc<Deps>,
    call: OpenCall,
    attempt: Attempt,
    message: Assistant,
    draft: AnswerDraft,
    answer: Accumulator,
}

/// What happens to an open call.
#[derive(Debug)]
pub(crate) enum ModelEvent {
    /// The model said something, or the call failed.
    Answer(Result<StreamEvent, llm::error::Error>),
    /// The text so far has left this process: more can be sent.
    Departed,
}

/// The end of an answer. Without tool calls it is stored with the end of its step, which follows at once.
#[derive(Debug)]
pub(crate) struct AnswerEnd {
    /// The parts that are not stored yet.
    pub(crate) events: Vec<Event>,
    pub(crate) message: Assistant,
    /// The cost of the call, if the provider reported usage.
    pub(crate) entry: Option<LedgerEntry>,
}

/// A model's answer, before anybody has decided about its calls.
#[derive(Debug)]
pub(crate) struct ModelAnswer {
    /// Without the parts of its calls.
    pub(crate) end: AnswerEnd,
    pub(crate) calls: Vec<FinishedCall>,
    /// The error of an answer that the provider cut off.
    pub(crate) cut_off: Option<Error>,
    pub(crate) has_text: bool,
}

/// A call that the model has written.
#[derive(Debug)]
pub(crate) struct FinishedCall {
    pub(crate) part_id: PartId,
    pub(crate) call_id: String,
    pub(crate) name: String,
    pub(crate) block: Block,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum ModelEnd {
    Answered(Box<ModelAnswer>),
    Failed(ModelFailure),
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
    pub(crate) entry: Option<LedgerEntry>,
}

impl AnswerEnd {
    /// Stores it without the end of its step.
    pub(crate) async fn store(self, record: &mut Record) -> Result<(), WriteError> {
        let message = Box::new(Message::Assistant(Box::new(self.message)));
        let answer = ChangeBody::Answer { message, entry: self.entry };
        record.write(Write::of(self.events).and(answer)).await
    }
}

impl ModelCall {
    /// Sends a call through the gate. [`ModelCall::next`] returns the answer, which fills `message`.
    pub(crate) fn start(deps: &Arc<Deps>, plan: CallPlan, message: Assistant, attempt: Attempt) -> Self {
        Self {
            deps: Arc::clone(deps),
            call: gate::open(deps, plan, &Bill::default()),
            attempt,
            message,
            draft: AnswerDraft::default(),
            answer: Accumulator::default(),
        }
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
            record.write(Write::of(ended)).await?;
        }
        self.draft.flush(record, &self.message.id, now).await
    }

    /// Handles an event of the answer. Returns how the call ended, once it is over.
    pub(crate) async fn take(
        &mut self,
        event: Result<StreamEvent, llm::error::Error>,
        record: &mut Record,
    ) -> Result<Option<ModelEnd>, WriteError> {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Ok(Some(self.failure(&error))),
        };
        self.answer.push(&event);
        match event {
            StreamEvent::Started { .. } => {}
            StreamEvent::TextStart { index } => self.open(index, answer_draft::Kind::Text, record).await?,
            StreamEvent::ReasoningStart { index } => {
                self.open(index, answer_draft::Kind::Reasoning, record).await?
            }
            StreamEvent::ToolStart { index, id, name } => {
                let call_id = self.unique(&domain::text::without_nul(&id));
                let name = domain::text::without_nul(&name).into_owned();
                self.open(index, answer_draft::Kind::Tool { call_id, name }, record).await?;
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
            StreamEvent::Finished { reason, .. } => return Ok(Some(self.finish(reason, record))),
        }
        Ok(None)
    }

    /// Ends a call early, because it failed or because the step is being stopped.
    pub(crate) fn abandon(mut self, record: &Record) -> PartialAnswer {
        self.draft.send_rest(record, &self.message.id);
        let events = self.draft.end_all(&self.message, now()).into_iter().map(part_updated).collect();
        PartialAnswer { events, entry: self.call.entry() }
    }

    async fn open(
        &mut self,
        index: u32,
        kind: answer_draft::Kind,
        record: &mut Record,
    ) -> Result<(), WriteError> {
        // Send the text of earlier parts first: clients show parts in the order in which they begin.
        self.draft.send_rest(record, &self.message.id);
        let start = answer_draft::BlockStart { index, id: self.deps.id(PartId::make), kind, now: now() };
        let ended = self.draft.take_ended(&self.message);
        let part = self.draft.open(start, &self.message);
        record.write(Write::of(ended.into_iter().chain([part]).map(part_updated).collect())).await
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

    fn finish(&mut self, reason: Finish, record: &Record) -> ModelEnd {
        let Attempt { may_be_empty, was_empty, .. } = self.attempt;
        if !may_be_empty && self.is_empty(reason) {
            self.measure(ANSWER_EMPTY);
            return ModelEnd::Failed(failure::empty(was_empty));
        }
        self.draft.send_rest(record, &self.message.id);
        let events = self.draft.end_all(&self.message, now()).into_iter().map(part_updated).collect();
        let calls = self.calls();
        self.message.finish = Some(reason.as_str().to_owned());
        // The message names the call: whichever worker closes the step later charges the same entry.
        let entry = self.call.entry().map(|entry| LedgerEntry { id: self.message.id.to_string(), ..entry });
        if let Some(entry) = &entry {
            (self.message.tokens, self.message.cost) = (entry.tokens, entry.cost);
        }
        self.measure("ok");
        let end = AnswerEnd { events, message: self.message.clone(), entry };
        ModelEnd::Answered(Box::new(ModelAnswer {
            end,
            calls,
            cut_off: cut_off(reason),
            has_text: self.draft.has_text(),
        }))
    }

    /// The tool calls of the answer, in its order.
    fn calls(&mut self) -> Vec<FinishedCall> {
        let blocks = std::mem::take(&mut self.answer).finish().blocks;
        let drafts = self.draft.blocks().map(|(id, kind)| (id.clone(), kind.clone()));
        let calls = drafts.zip(blocks).filter_map(|((part_id, kind), block)| match kind {
            answer_draft::Kind::Tool { call_id, name } => {
                Some(FinishedCall { part_id, call_id, name, block })
            }
            answer_draft::Kind::Text | answer_draft::Kind::Reasoning => None,
        });
        calls.collect()
    }

    fn failure(&self, error: &llm::error::Error) -> ModelEnd {
        self.measure(error.kind.as_str());
        tracing::warn!(parent: self.call.span(), error.code = error.kind.as_str(), "a model call failed: {error}");
        let provider_id = &self.message.model.model.provider_id;
        // Without them, the next attempt can succeed.
        let is_refusal = self.attempt.has_media && error.is_about_media();
        ModelEnd::Failed(if is_refusal {
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

fn part_updated(part: Part) -> Event {
    Event::PartUpdated { part: Box::new(part), at: now() }
}
