//! The boundaries of a step: its message and its model call, the pause before another attempt, and its end.

mod unanswered;

use self::unanswered::{aborted, interrupted};
use super::{
    intents::{AnswerTerms, SettledAnswer},
    session::Session,
    snapshots::StepFiles,
    waits::doubt,
};
use crate::{
    conversation::entries,
    model::call::{AnswerEnd, ModelCall, ModelEnd, ModelEvent, PartialAnswer},
    process::clock::now,
    record::{Write, WriteError},
    tools::{outcome::Output, tool::Tool},
};
use domain::{
    conversation::{
        message::{Assistant, Error, Message, MessageTime, Path, User},
        part::{Body, Part, Retry, RetryTime, Snapshot, StepFinish, StepStart, ToolState},
        request::{Answer, Id},
    },
    event::{Event, Status},
    ids::{MessageId, PermissionId, QuestionId, Timestamp},
    limits,
    money::{Tokens, UsdPicos},
    policy::agent::COMPACTION,
    session::WORKSPACE,
    text,
    turn::signal::Signal,
};
use llm::event::Event as StreamEvent;
use std::{collections::BTreeMap, time::Duration};
use store::{
    log::record::Progress,
    rows::ledger::{CallOutcome, LedgerEntry, Purpose},
};
use tokio::time::Instant;

/// Bytes of the text that says why a step is repeated: one line of a terminal, together with the countdown. The rest is cut.
const RETRY_TEXT_BYTES_MAX: usize = 80;

/// What a stopped step leaves.
pub(super) struct Remains {
    pub(super) files: StepFiles,
    /// The calls for a title that end with the step.
    pub(super) titles: Vec<LedgerEntry>,
    /// The answers of its ended commands, by exec id.
    pub(super) commands: BTreeMap<String, Output>,
}

/// The model call of the newest step, and the pause after a failed one.
#[derive(Default)]
pub(super) struct Step {
    call: Option<ModelCall>,
    /// The constraints of its answer.
    terms: AnswerTerms,
    /// The end of its answer, until it is stored.
    answer: Option<AnswerEnd>,
    back_off_until: Option<Instant>,
    /// Steps that this loop has closed.
    closed: u32,
}

impl Step {
    /// Whether a model call is open.
    pub(super) fn is_calling(&self) -> bool {
        self.call.is_some()
    }

    /// Whether this loop has closed a step.
    pub(super) fn has_closed_one(&self) -> bool {
        self.closed > 0
    }

    /// Stores the model call that was just sent.
    pub(super) fn open(&mut self, call: ModelCall, terms: AnswerTerms) {
        (self.call, self.terms) = (Some(call), terms);
    }

    /// Waits for the next event of the model call, if one is open. Cancel-safe.
    pub(super) async fn next(&mut self) -> ModelEvent {
        match &mut self.call {
            Some(call) => call.next().await,
            None => std::future::pending().await,
        }
    }

    /// Stores an event of the model's answer. Returns a signal once the answer is over.
    pub(super) async fn take(
        &mut self,
        session: &mut Session,
        event: Result<StreamEvent, llm::error::Error>,
    ) -> Result<Option<Signal>, WriteError> {
        let Some(call) = &mut self.call else { return Ok(None) };
        let answer = match call.take(event, &mut session.record).await? {
            None => return Ok(None),
            Some(ModelEnd::Failed(failure)) => return Ok(Some(Signal::Failed(failure))),
            Some(ModelEnd::Answered(answer)) => *answer,
        };
        self.call = None;
        let settled = self.terms.settle(session.converter(), answer).await;
        let SettledAnswer { end, has_calls, open } = settled;
        if has_calls {
            end.store(&mut session.record).await?;
        } else {
            self.answer = Some(end);
        }
        Ok(Some(Signal::Answered(open)))
    }

    /// Stores the end of the answer, because the end of the step has to wait.
    pub(super) async fn store_answer(&mut self, session: &mut Session) -> Result<(), WriteError> {
        match self.answer.take() {
            Some(answer) => answer.store(&mut session.record).await,
            None => Ok(()),
        }
    }

    /// When the loop must call [`Step::tick`] at the latest.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let flush_at = self.call.as_ref().and_then(ModelCall::next_flush);
        self.back_off_until.into_iter().chain(flush_at).min()
    }

    /// Sends and stores text that has waited long enough, and ends an expired pause.
    pub(super) async fn tick(
        &mut self,
        session: &mut Session,
        now: Instant,
    ) -> Result<Option<Signal>, WriteError> {
        if let Some(call) = &mut self.call {
            call.flush(&mut session.record).await?;
        }
        if self.back_off_until.is_some_and(|until| until <= now) {
            self.back_off_until = None;
            return Ok(Some(Signal::PauseEnded));
        }
        Ok(None)
    }

    /// Drops the pause before the next attempt.
    pub(super) fn end_pause(&mut self) {
        self.back_off_until = None;
    }

    /// Ends the model call, if one is open, because it failed or the step is being stopped.
    fn abandon(&mut self, session: &Session) -> PartialAnswer {
        self.call.take().map(|call| call.abandon(&session.record)).unwrap_or_default()
    }

    /// Ends the model call, if one is open, and stores its text so far. Another worker continues the step.
    pub(super) async fn leave(
        &mut self,
        session: &mut Session,
        titles: Vec<LedgerEntry>,
    ) -> Result<(), WriteError> {
        let PartialAnswer { events, entry } = self.abandon(session);
        let entries: Vec<LedgerEntry> = titles.into_iter().chain(entry).collect();
        write(session, events, entries).await
    }

    /// Shows why an attempt failed, and begins the pause before the next one.
    pub(super) async fn back_off(
        &mut self,
        session: &mut Session,
        attempt: u32,
        until: Timestamp,
        error: &Error,
    ) -> Result<(), WriteError> {
        // Measured before the write: the clock of Postgres may be set back during it.
        let wait_ms = u64::try_from(until.0 - now().0).unwrap_or(0).min(limits::BACK_OFF_IN_SLOT_MS);
        let over_at = Instant::now() + Duration::from_millis(wait_ms);
        let PartialAnswer { mut events, entry } = self.abandon(session);
        if let Some((message, _)) = session.conversation().last_step() {
            let retry = Retry { attempt, error: error.clone(), time: RetryTime { created: now() } };
            events.push(session.new_part(&message.id, Body::Retry(retry)));
        }
        let message = brief(&error.data.message).to_owned();
        events.push(Event::SessionStatus(Status::Retry { attempt, message, next: until }));
        write(session, events, entry.into_iter().collect()).await?;
        self.back_off_until = Some(over_at);
        Ok(())
    }

    /// Closes the step, with the next write: its cost is added to the session, and the loop has made progress.
    pub(super) async fn finish(&mut self, session: &mut Session, files: StepFiles) -> Result<(), WriteError> {
        let Some((message, parts)) = session.conversation().last_step() else { return Ok(()) };
        // A step that only runs the calls of a prompt has no model call.
        let has_model_call = parts.iter().any(|(_, part)| matches!(part.body, Body::StepStart(_)));
        let stored = || AnswerEnd { events: vec![], message: message.clone(), entry: None };
        let AnswerEnd { mut events, mut message, entry } = self.answer.take().unwrap_or_else(stored);
        message.time.completed = Some(now());
        let finish = StepFinish {
            reason: message.finish.clone().unwrap_or_default(),
            snapshot: files.snapshot.clone(),
            cost: message.cost,
            tokens: message.tokens,
        };
        events.extend(files.late);
        events.extend(has_model_call.then(|| session.new_part(&message.id, Body::StepFinish(finish))));
        let snapshot = files.snapshot.filter(|_| !has_model_call);
        let snapshot = snapshot.map(|snapshot| Body::Snapshot(Snapshot { snapshot }));
        let bodies = snapshot.into_iter().chain(files.patch.map(Body::Patch));
        events.extend(bodies.map(|body| session.new_part(&message.id, body)));
        events.extend(files.notices);
        if message.is_summary() && message.error.is_none() {
            events.push(Event::SessionCompacted);
        }
        events.extend(message.error.clone().map(Event::SessionError));
        let entry = entry.or_else(|| answer_entry(&message));
        events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message)))));
        let events = session.announced(events);
        self.closed += 1;
        let write = Write::of(events).and_cost(entry.into_iter().collect());
        session.record.write(write.with_progress(Progress::Made).with_next()).await
    }

    /// Closes the step with an error. Streamed text and the output of commands stay, and other running calls are marked as
    /// interrupted.
    pub(super) async fn close(
        &mut self,
        session: &mut Session,
        error: Error,
        remains: Remains,
    ) -> Result<(), WriteError> {
        let Remains { files, titles, commands } = remains;
        let mut events = doubt::withdrawal(session);
        events.extend(files.late);
        let partial = self.abandon(session);
        events.extend(partial.events);
        let open = session.conversation().last_step().filter(|(step, _)| step.time.completed.is_none());
        let mut message = match open {
            Some((message, parts)) => {
                events.extend(parts.iter().filter_map(|(_, part)| {
                    let state = if error.is_abort() { aborted(part, &commands) } else { interrupted(part) };
                    Some(ended(part, state?))
                }));
                events.extend(parts.iter().filter_map(|(_, part)| withdrawn_request(part)));
                message.clone()
            }
            None => {
                let Some(user) = session.newest_user() else { return Ok(()) };
                new_step(session, user)
            }
        };
        // A step that is stopped writes no `step-finish`, but its file changes are still recorded.
        let snapshot = files.snapshot.filter(|_| files.patch.is_some());
        let snapshot = snapshot.map(|snapshot| Body::Snapshot(Snapshot { snapshot }));
        let bodies = snapshot.into_iter().chain(files.patch.map(Body::Patch));
        events.extend(bodies.map(|body| session.new_part(&message.id, body)));
        events.extend(files.notices);
        let entries = titles.into_iter().chain(answer_entry(&message)).chain(partial.entry).collect();
        message.error = Some(error.clone());
        message.time.completed = Some(now());
        events.push(Event::SessionError(error));
        events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message)))));
        let events = session.announced(events);
        let write = Write::of(events).and_cost(entries).with_progress(Progress::Made);
        session.record.write(write).await?;
        session.inputs.clear();
        Ok(())
    }
}

/// Writes events, and the cost of model calls if there is any.
async fn write(
    session: &mut Session,
    events: Vec<Event>,
    entries: Vec<LedgerEntry>,
) -> Result<(), WriteError> {
    if entries.is_empty() && events.is_empty() {
        return Ok(());
    }
    if entries.is_empty() {
        return session.write(events, Progress::None).await;
    }
    session.record.write(Write::of(events).and_cost(entries)).await
}

/// Writes the message of a step, after `more`; `failed` attempts came before. A step that a failed attempt or a dead worker left
/// open is begun again: its parts are removed, except those that report earlier failures. `snapshot` is the known state of the
/// files.
pub(super) async fn begin(
    session: &mut Session,
    user: &User,
    failed: u32,
    more: Option<Event>,
    snapshot: Option<String>,
) -> Result<Assistant, WriteError> {
    let mut events: Vec<Event> = more.into_iter().collect();
    events.extend(doubt::withdrawal(session));
    if failed == 0 {
        events.push(Event::SessionStatus(Status::Busy));
    }
    let left = session.open_step();
    if let Some((_, parts)) = left {
        let removed = parts.iter().filter(|(_, part)| !matches!(part.body, Body::Retry(_)));
        events.extend(removed.map(|(_, part)| Event::PartRemoved {
            message_id: part.message_id.clone(),
            part_id: part.id.clone(),
        }));
    }
    let message = match left {
        Some((left, _)) if left.parent_id == user.id => {
            Assistant { model: user.model.clone(), ..left.clone() }
        }
        // The step was begun for an earlier prompt and precedes this one. Readers would not recognize it as the answer to this
        // prompt.
        Some((left, _)) => {
            let mut left = left.clone();
            left.error = Some(Error::aborted());
            left.time.completed = Some(now());
            events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(left)))));
            new_step(session, user)
        }
        None => new_step(session, user),
    };
    events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message.clone())))));
    events.push(session.new_part(&message.id, Body::StepStart(StepStart { snapshot })));
    session.write_announced(events, Progress::None).await?;
    Ok(message)
}

/// The message of a step that answers `user`: a summary, if the prompt requests one.
fn new_step(session: &Session, user: &User) -> Assistant {
    let step = assistant(session.deps.id(MessageId::make), user);
    let entries = session.conversation().entries();
    let request = entries::position(entries, &user.id).and_then(|at| entries::compaction(&entries[at].parts));
    if request.is_none() {
        return step;
    }
    let agent = COMPACTION.to_owned();
    Assistant { mode: agent.clone(), agent, summary: Some(true), ..step }
}

/// The message of a step that answers `user`.
pub(super) fn assistant(id: MessageId, user: &User) -> Assistant {
    Assistant {
        id,
        session_id: user.session_id.clone(),
        time: MessageTime { created: now(), completed: None },
        parent_id: user.id.clone(),
        model: user.model.clone(),
        mode: user.agent.clone(),
        agent: user.agent.clone(),
        path: Path { cwd: WORKSPACE.to_owned(), root: WORKSPACE.to_owned() },
        cost: UsdPicos(0),
        tokens: Tokens::default(),
        finish: None,
        error: None,
        summary: None,
        structured: None,
    }
}

/// The cost of a step's complete answer. The write of the answer has already charged the same entry, unless a worker without a
/// ledger stored the answer.
fn answer_entry(message: &Assistant) -> Option<LedgerEntry> {
    (message.tokens != Tokens::default()).then(|| LedgerEntry {
        id: message.id.to_string(),
        purpose: if message.is_summary() { Purpose::Summary } else { Purpose::Step },
        outcome: CallOutcome::Finished,
        model: message.model.model.clone(),
        tokens: message.tokens,
        cost: message.cost,
        cost_max: None,
    })
}

/// Closes the request of a call that will not run. An earlier answer stays.
fn withdrawn_request(part: &Part) -> Option<Event> {
    let tool = part.body.as_tool()?;
    let id = match &tool.state {
        ToolState::Pending { .. } => Id::Permission(PermissionId::of(&part.id)),
        ToolState::Running { .. }
            if [Tool::Question, Tool::PlanExit].map(Tool::name).contains(&&*tool.tool) =>
        {
            Id::Question(QuestionId::of(&part.id))
        }
        ToolState::Running { .. } | ToolState::Completed { .. } | ToolState::Error { .. } => return None,
    };
    Some(Event::RequestAnswered { id, answer: Answer::Reject { message: None } })
}

/// A call in its last state.
fn ended(part: &Part, state: ToolState) -> Event {
    let mut part = part.clone();
    if let Body::Tool(tool) = &mut part.body {
        tool.state = state;
    }
    Event::PartUpdated { part: Box::new(part), at: now() }
}

/// The beginning of an error's message, for the status line of a terminal. The part `retry` has the whole message.
fn brief(message: &str) -> &str {
    text::head(message.split(" (HTTP ").next().unwrap_or(message), RETRY_TEXT_BYTES_MAX)
}

#[cfg(test)]
mod tests;
