//! The gate: steps, summaries and titles all start their model calls here. The gate knows the maximum cost of a call before it
//! is sent, and records the cost that the provider reports, also if the call fails or is aborted.
//!
//! Providers report usage while they stream: some at the beginning and the end of an answer, some only at the end. The gate
//! counts the usage that was reported until the call ended. It never estimates: a call without reported usage produces no
//! entry.
// Continues in store::rows::ledger, which stores the entries.

use crate::process::deps::Deps;
use domain::{
    conversation::message::ModelRef,
    ids::{EventId, SessionId},
    money::{Rates, Tokens, UsdPicos},
    policy::tool,
    text,
};
use futures::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _};
use llm::{
    error::{Error, ErrorKind},
    event::Event,
    model::Model,
    provider::Provider,
    request::Request,
};
use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};
use store::rows::ledger::{CallOutcome, LedgerEntry, Purpose};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

/// Tokens that providers add to a prompt for each message and tool: roles, separators, their own instructions for tools.
const TOKENS_PER_ITEM_MAX: u64 = 512;

type Events = Pin<Box<dyn Stream<Item = Result<Event, Error>> + Send>>;

/// A model call that is about to be sent.
pub(crate) struct CallPlan {
    pub(crate) provider: Provider,
    pub(crate) model: Model,
    pub(crate) request: Request,
    pub(crate) session: SessionId,
    pub(crate) purpose: Purpose,
}

impl CallPlan {
    /// The maximum cost of the call.
    pub(crate) fn cost_max(&self) -> UsdPicos {
        let prompt = prompt_tokens_max(&self.request, &self.model);
        let output = match self.request.output_tokens_max {
            0 => self.model.output_tokens,
            requested => requested.min(self.model.output_tokens),
        };
        // A shorter prompt may fall into a cheaper or a more expensive tier: take the highest rate that any prompt
        // could meet.
        let price = &self.model.price;
        let tiers = price.tiers.iter().filter(|(above, _)| prompt > *above).map(|(_, rates)| rates);
        let rates: Vec<&Rates> = std::iter::once(&price.base).chain(tiers).collect();
        let highest = |rate: fn(&Rates) -> u64| rates.iter().map(|rates| rate(rates)).max().unwrap_or(0);
        let input = highest(|rates| rates.input.max(rates.cache_read).max(rates.cache_write));
        let cost = |tokens: u64, rate: u64| u128::from(tokens) * u128::from(rate);
        let picos = cost(prompt, input) + cost(output, highest(|rates| rates.output));
        UsdPicos(i64::try_from(picos).unwrap_or(i64::MAX))
    }
}

/// The maximum number of tokens of a prompt. A token has at least one byte, so texts have at most as many tokens as bytes.
/// For pictures and documents only the model's own limit is known.
fn prompt_tokens_max(request: &Request, model: &Model) -> u64 {
    let limit = model.input_tokens.unwrap_or(model.context_tokens).min(model.context_tokens);
    let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    let Some(texts) = request.text_bytes_within(usize::try_from(limit).unwrap_or(usize::MAX)) else {
        return limit;
    };
    let bytes = |spec: &tool::Spec| spec.name.len() + spec.description.len() + text::json_bytes(&spec.schema);
    let tools = request.tools.iter().map(bytes).sum::<usize>();
    let items = count(1 + request.messages.len() + request.tools.len());
    count(texts.saturating_add(tools)).saturating_add(items.saturating_mul(TOKENS_PER_ITEM_MAX)).min(limit)
}

/// The cost of one purpose's calls so far. Clones share it, so that the loop can account for a call whose task it ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bill(Arc<Mutex<Vec<LedgerEntry>>>);

impl Bill {
    /// The calls whose provider reported usage.
    pub(crate) fn entries(&self) -> Vec<LedgerEntry> {
        let is_known = |entry: &&LedgerEntry| entry.tokens != Tokens::default();
        self.with(|entries| entries.iter().filter(is_known).cloned().collect())
    }

    fn begin(&self, entry: LedgerEntry) {
        self.with(|entries| entries.push(entry));
    }

    fn update(&self, id: &str, change: impl FnOnce(&mut LedgerEntry)) {
        self.with(|entries| entries.iter_mut().find(|entry| entry.id == id).map(change));
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<LedgerEntry>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An open call. Dropping it closes the connection and records it as aborted, unless it has ended.
pub(crate) struct OpenCall {
    events: Events,
    model: Model,
    bill: Bill,
    /// Names the call in the bill.
    id: String,
    span: Span,
    begun: Instant,
}

/// Sends a call and records its cost on `bill`. [`OpenCall::next`] returns its events.
///
/// Every model call of the worker passes here. A future reservation of money before a call belongs here too, with
/// [`CallPlan::cost_max`].
pub(crate) fn open(deps: &Deps, plan: CallPlan, bill: &Bill) -> OpenCall {
    let cost_max = plan.cost_max();
    let CallPlan { provider, model, request, session, purpose } = plan;
    let id = deps.id(EventId::make).to_string();
    bill.begin(LedgerEntry {
        id: id.clone(),
        purpose,
        outcome: CallOutcome::Aborted,
        model: ModelRef { provider_id: provider.id.clone(), model_id: model.id.clone() },
        tokens: Tokens::default(),
        cost: UsdPicos(0),
        cost_max: Some(cost_max),
    });
    let span = chat_span(&provider, &model);
    let (client, called) = (deps.models.clone(), model.clone());
    let headers = vec![("x-session-id".to_owned(), session.to_string())];
    let opened = async move { client.stream(&provider, &called, request, headers).await };
    // Boxed separately: the request, and the memory for sending it, are freed when the answer begins.
    let opened = Box::pin(opened.instrument(span.clone()));
    let events = Box::pin(opened.into_stream().try_flatten());
    OpenCall { events, model, bill: bill.clone(), id, span, begun: Instant::now() }
}

impl OpenCall {
    /// Waits for the next event of the answer. The last one is [`Event::Finished`] or an error. Cancel-safe: an event that was not
    /// returned stays in the stream.
    ///
    /// # Errors
    /// The provider's event, or the reason why its answer ended early.
    pub(crate) async fn next(&mut self) -> Result<Event, Error> {
        let event = self.events.next().await.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Truncated, "the stream ended before the answer was complete"))
        });
        match &event {
            Ok(Event::Usage(tokens)) => {
                let cost = self.model.price.cost(tokens);
                self.bill.update(&self.id, |entry| (entry.tokens, entry.cost) = (*tokens, cost));
            }
            Ok(Event::Finished { reason, .. }) => {
                self.end(CallOutcome::Finished);
                self.span.record("gen_ai.response.finish_reasons", reason.as_str());
            }
            Err(error) => {
                self.end(CallOutcome::Failed);
                self.span.record("error.code", error.kind.as_str());
            }
            Ok(
                Event::Started { .. }
                | Event::TextStart { .. }
                | Event::Text { .. }
                | Event::ReasoningStart { .. }
                | Event::Reasoning { .. }
                | Event::ReasoningEnd { .. }
                | Event::ToolStart { .. }
                | Event::ToolArguments { .. }
                | Event::BlockEnd { .. },
            ) => {}
        }
        event
    }

    /// The current entry of the call; `None` while the provider has reported no usage.
    pub(crate) fn entry(&self) -> Option<LedgerEntry> {
        self.bill.entries().into_iter().find(|entry| entry.id == self.id)
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// When the call was sent.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    fn end(&mut self, outcome: CallOutcome) {
        self.bill.update(&self.id, |entry| entry.outcome = outcome);
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let tokens = self.entry().map(|entry| entry.tokens).unwrap_or_default();
        count_tokens(&tokens);
        self.span.record("gen_ai.usage.input_tokens", tokens.prompt());
        self.span.record("gen_ai.usage.output_tokens", tokens.output + tokens.reasoning);
    }
}

/// The span of a model call, under the names of the OpenTelemetry conventions for generative AI and our own.
fn chat_span(provider: &Provider, model: &Model) -> Span {
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

/// Adds the tokens of a call to the metrics.
fn count_tokens(tokens: &Tokens) {
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

#[cfg(test)]
mod tests;
