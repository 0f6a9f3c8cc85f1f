//! The boundaries of a step: calling the model, waiting for the next attempt, closing, parking.

use super::{
    Loop,
    opening::Delayed,
    snapshots::{HURRY, Seen},
};
use crate::{
    clock::now,
    context, lower,
    model::{Asked, ModelCall},
    record::{Ended, Stopped, answered},
    rights::Rights,
    structured::Structured,
    tools::Tool,
};
use domain::{
    agent::{COMPACTION, Mode},
    event::{Event, Status},
    ids::{MessageId, PartId, PermissionId, QuestionId, SessionId, Timestamp},
    limits,
    message::{Assistant, Error, Message, MessageTime, ModelRef, Path, User},
    money::{Tokens, UsdPicos},
    part::{Body, Part, Retry, RetryTime, Snapshot, StepFinish, StepStart, ToolState},
    request::{Answer, Id},
    session::{Outcome, WORKSPACE},
    turn::{End, Failure, Input},
    wait::{Reason, Wait},
};
use llm::{model::Model, provider::Provider};
use std::time::Duration;
use store::{log::record::Progress, session::park::Park};
use tokio::time::Instant;

impl Loop {
    /// Begins a step, or another attempt at it, and calls the model.
    pub(super) async fn call(&mut self, failed: u32) -> Result<Option<Input>, Stopped> {
        self.lease_runs().await;
        let Some(user) = self.conversation.newest_user(&self.inputs).cloned() else { return Ok(None) };
        if let Err(unknown) = self.found(&user.model.model) {
            return Ok(Some(unknown));
        }
        if self.read_files(failed) {
            return Ok(None);
        }
        let step = Box::new((user.clone(), self.begin_step(&user, failed, None).await?));
        let Some(Delayed::Call(step)) = self.when_guided(Delayed::Call(step)) else { return Ok(None) };
        self.call_model(&step.0, step.1)
    }

    /// Calls the model for a step that has begun.
    pub(super) fn call_model(&mut self, user: &User, message: Assistant) -> Result<Option<Input>, Stopped> {
        let Some(user) = self.answering(user) else {
            let error = agent_unknown(&user.agent, &self.rights);
            return Ok(Some(Input::Failed(Failure { error, retryable: false, retry_after_ms: None })));
        };
        let (provider, model) = match self.found(&user.model.model) {
            Ok(found) => found,
            Err(unknown) => return Ok(Some(unknown)),
        };
        let mut asked = Asked {
            rights: self.rights.of_prompt(user.tools.as_ref()),
            structured: Structured::of(&user, self.conversation.misfits()),
            offered: vec![],
        };
        let (agent, steps) = (self.rights.agent(&user.agent), self.conversation.steps());
        let steps_max =
            agent.and_then(|agent| agent.steps).unwrap_or(u32::MAX).min(limits::STEPS_PER_TURN_MAX);
        let question = lower::Question {
            user: &user,
            rights: &asked.rights,
            structured: asked.structured.as_ref(),
            is_last: steps >= steps_max,
            guidance: self.opening.guidance(),
        };
        let mut request = self.conversation.work(|entries| lower::request(entries, &question, &model));
        if let Some(agent) = agent {
            lower::configure(&mut request, agent);
        }
        asked.offered = request.tools.iter().map(|tool| tool.name.clone()).collect();
        self.look_at_files();
        let (mode, agent) = (user.agent.clone(), user.agent.clone());
        let message = Assistant { model: user.model.clone(), mode, agent, ..message };
        self.model = Some(ModelCall::start(&self.deps, provider, model, request, (message, asked)));
        self.ask_for_title(&user);
        Ok(None)
    }

    /// The prompt, for the agent and the model that the repository wants where nobody chose them. `None` when its agent may not
    /// answer it.
    pub(super) fn answering(&self, user: &User) -> Option<User> {
        let (mut user, chosen) = (user.clone(), self.fixed.chosen);
        if let Some(agent) = &self.settings().default_agent
            && !chosen.agent
            && user.agent == self.fixed.agent
        {
            user.agent.clone_from(agent);
        }
        let configured = self.rights.agent(&user.agent);
        let is_subagent = configured.is_some_and(|agent| agent.mode == Some(Mode::Subagent));
        if !self.rights.knows(&user.agent) || is_subagent && self.fixed.call.is_none() {
            return None;
        }
        let of_repository = || self.settings().model.as_ref().filter(|_| !chosen.model);
        // What is not to be had here is no reason to do nothing: `flotilla config explain` tells of it.
        let is_known = |model: &&ModelRef| self.found(model).is_ok();
        let of_agent = configured.and_then(|agent| agent.model.as_ref());
        if let Some(model) = of_agent.or_else(|| of_repository().filter(is_known))
            && user.model.model == self.fixed.model
        {
            user.model.model = model.clone();
        }
        Some(user)
    }

    /// A model with its provider, or the failure of a call without one.
    pub(super) fn found(&self, asked: &ModelRef) -> Result<(Provider, Model), Input> {
        let found = self.model_of(asked).map(|(provider, model)| (provider.clone(), model));
        found.ok_or_else(|| {
            let known = self.deps.providers.providers.known();
            let error = model_unknown(asked, &known, self.settings().allows(asked));
            Input::Failed(Failure { error, retryable: false, retry_after_ms: None })
        })
    }

    /// A model of this deployment, with the room that settings leave it; none that they do not allow.
    pub(super) fn model_of(&self, asked: &ModelRef) -> Option<(&Provider, Model)> {
        let settings = self.settings();
        let (provider, model) = self.deps.providers.providers.find(&asked.provider_id, &asked.model_id)?;
        let (limit, mut model) = (settings.limit(asked), model.clone());
        model.context_tokens = model.context_tokens.min(limit.context.unwrap_or(u64::MAX));
        model.output_tokens = model.output_tokens.min(limit.output.unwrap_or(u64::MAX));
        model.input_tokens = model.input_tokens.into_iter().chain(limit.input).min();
        settings.allows(asked).then_some((provider, model))
    }

    /// Writes the step's message. A step that a failed attempt or a dead worker left is begun anew: its parts are
    /// removed, not doubled; what says why stays.
    pub(super) async fn begin_step(
        &mut self,
        user: &User,
        failed: u32,
        more: Option<Event>,
    ) -> Result<Assistant, Stopped> {
        let mut events: Vec<Event> = self.take_over.take().into_iter().chain(more).collect();
        events.extend(self.doubt_over());
        if failed == 0 {
            events.push(Event::SessionStatus(Status::Busy));
        }
        let left =
            self.conversation.last_step().filter(|(left, _)| left.finish.is_none() && left.error.is_none());
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
            // It was begun for an earlier prompt, and stands before this one: as an answer to it, it would be read as none.
            Some((left, _)) => {
                let mut left = left.clone();
                left.error = Some(Error::aborted());
                left.time.completed = Some(now());
                events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(left)))));
                self.new_step(user)
            }
            None => self.new_step(user),
        };
        events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message.clone())))));
        let begun = StepStart { snapshot: self.state_before(left.map(|(_, parts)| parts)) };
        events.push(self.new_part(&message.id, Body::StepStart(begun)));
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        Ok(message)
    }

    /// The message of a step that answers `user`: one that sums up, if that is what it asks for.
    fn new_step(&self, user: &User) -> Assistant {
        let step = assistant(self.deps.id(MessageId::make), user);
        let entries = self.conversation.entries();
        let asked = context::place(entries, &user.id).and_then(|at| context::compaction(&entries[at].parts));
        if asked.is_none() {
            return step;
        }
        let agent = COMPACTION.to_owned();
        Assistant { mode: agent.clone(), agent, summary: Some(true), ..step }
    }

    pub(super) async fn back_off(
        &mut self,
        attempt: u32,
        until: Timestamp,
        error: &Error,
    ) -> Result<(), Stopped> {
        // Counted from here: Postgres' clock may be set back during the write.
        let wait_ms = u64::try_from(until.0 - now().0).unwrap_or(0).min(limits::BACK_OFF_IN_SLOT_MS);
        let over_at = Instant::now() + Duration::from_millis(wait_ms);
        let mut events = self.model.take().map(|call| call.abandon(&self.record)).unwrap_or_default();
        if let Some((message, _)) = self.conversation.last_step() {
            let retry = Retry { attempt, error: error.clone(), time: RetryTime { created: now() } };
            let id = message.id.clone();
            events.push(self.new_part(&id, Body::Retry(retry)));
        }
        let message = error.data.message.clone();
        events.push(Event::SessionStatus(Status::Retry { attempt, message, next: until }));
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        self.back_off_until = Some(over_at);
        Ok(())
    }

    /// Closes the step: its tokens are spent, and the loop got further.
    pub(super) async fn finish(&mut self) -> Result<(), Stopped> {
        let seen = self.see_files(Duration::from_millis(limits::SNAPSHOT_WAIT_MS)).await;
        let Some((message, parts)) = self.conversation.last_step() else { return Ok(()) };
        // A step of tasks that a prompt gave to subagents has no model call.
        let was_called = parts.iter().any(|(_, part)| matches!(part.body, Body::StepStart(_)));
        let mut message = message.clone();
        message.time.completed = Some(now());
        let spent = (message.tokens, message.cost);
        let finish = StepFinish {
            reason: message.finish.clone().unwrap_or_default(),
            snapshot: seen.snapshot.clone(),
            cost: message.cost,
            tokens: message.tokens,
        };
        let mut events: Vec<Event> = self.take_over.take().into_iter().collect();
        events.extend(seen.late);
        events.extend(was_called.then(|| self.new_part(&message.id, Body::StepFinish(finish))));
        let state =
            seen.snapshot.filter(|_| !was_called).map(|snapshot| Body::Snapshot(Snapshot { snapshot }));
        let bodies = state.into_iter().chain(seen.patch.map(Body::Patch));
        events.extend(bodies.map(|body| self.new_part(&message.id, body)));
        events.extend(seen.told);
        if message.is_summary() && message.error.is_none() {
            events.push(Event::SessionCompacted);
        }
        events.extend(message.error.clone().map(Event::SessionError));
        events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message)))));
        self.record.write_spending(&mut self.conversation, events, spent).await?;
        self.steps += 1;
        self.report_to_parent().await;
        Ok(())
    }

    /// Closes the step with an error: what was streamed stays, what was running is marked.
    pub(super) async fn close(&mut self, error: Error) -> Result<(), Stopped> {
        let is_open = self.conversation.last_step().is_some_and(|(step, _)| step.time.completed.is_none());
        let seen = if is_open { self.see_files(HURRY).await } else { Seen::default() };
        let mut events: Vec<Event> = self.take_over.take().into_iter().collect();
        events.extend(self.doubt_over());
        events.extend(self.model.take().map(|call| call.abandon(&self.record)).unwrap_or_default());
        let open = self.conversation.last_step().filter(|(message, _)| message.time.completed.is_none());
        let mut message = match open {
            Some((message, parts)) => {
                events.extend(parts.iter().filter_map(|(_, part)| interrupted(part)));
                events.extend(parts.iter().filter_map(|(_, part)| request_closed(part)));
                message.clone()
            }
            None => {
                let Some(user) = self.conversation.newest_user(&self.inputs) else { return Ok(()) };
                self.new_step(user)
            }
        };
        // A step that was stopped has no end of its own, but what it did to the files is known all the same.
        let state = seen.snapshot.filter(|_| seen.patch.is_some());
        let state = state.map(|snapshot| Body::Snapshot(Snapshot { snapshot }));
        let bodies = state.into_iter().chain(seen.patch.map(Body::Patch));
        events.extend(bodies.map(|body| self.new_part(&message.id, body)));
        events.extend(seen.told);
        message.error = Some(error.clone());
        message.time.completed = Some(now());
        let spent = (message.tokens, message.cost);
        events.push(Event::SessionError(error));
        events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message)))));
        self.record.write_spending(&mut self.conversation, events, spent).await?;
        self.inputs.clear();
        Ok(())
    }

    /// Ends the loop; an input that came meanwhile is looked at first.
    pub(super) async fn park(&mut self, end: End) -> Result<Input, Stopped> {
        let mut events: Vec<Event> = self.take_over.clone().into_iter().collect();
        let park = match end {
            End::Idle(outcome) => {
                if outcome == Outcome::Done {
                    self.ask_again_for_title().await;
                }
                self.sum_up_changes().await?;
                events.extend(self.commands_over());
                events.extend(self.prune());
                events.extend([Event::SessionStatus(Status::Idle), Event::SessionIdle(outcome)]);
                self.turn_over(outcome)
            }
            End::Wait(wait) => {
                events.push(Event::SessionWaiting(wait));
                Park::Waiting { wait, notify: self.parent_without_budget(wait) }
            }
        };
        self.await_title().await?;
        if self.record.park(&mut self.conversation, events, &park).await? == Ended::NewInput {
            return Ok(Input::NewInput);
        }
        match end {
            End::Idle(outcome) => {
                self.after_turn(outcome).await;
                // Nobody speaks to a subtask again soon; a person may, to a session.
                if self.fixed.call.is_some() {
                    self.tools.release_sandbox();
                }
            }
            End::Wait(wait) => {
                metrics::counter!("flotilla_parks_total", "reason" => wait.reason.as_str()).increment(1);
                tracing::info!(reason = wait.reason.as_str(), "the loop is parked");
                self.tools.release_sandbox();
                if let Some(parent) = self.parent_without_budget(wait) {
                    self.deps.interrupt(self.record.tenant(), &parent, self.fixed.class).await;
                }
            }
        }
        Ok(Input::Parked)
    }

    /// The parent of a child that waits for the budget: what it waits for is the same from now on.
    fn parent_without_budget(&self, wait: Wait) -> Option<SessionId> {
        let call = self.fixed.call.as_ref().filter(|_| wait.reason == Reason::Budget)?;
        Some(call.session.clone())
    }

    fn turn_over(&self, outcome: Outcome) -> Park {
        let error = self.conversation.last_step().and_then(|(message, _)| message.error.as_ref());
        let error = error.filter(|_| outcome != Outcome::Done).map(|error| error.data.message.clone());
        let answer = self.answer_for_parent(outcome, error.as_deref());
        Park::Idle { outcome, error, answer }
    }

    async fn after_turn(&mut self, outcome: Outcome) {
        metrics::counter!("flotilla_turns_total", "outcome" => outcome.as_str()).increment(1);
        tracing::info!(outcome = outcome.as_str(), "the turn ended");
        let (tenant, session) = (self.record.tenant(), self.record.session());
        if let Some(call) = &self.fixed.call {
            self.deps.interrupt(tenant, &call.session, self.fixed.class).await;
        }
        if let Err(error) = answered(self.deps.store.delete_chunks(tenant, session)).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "chunks were not removed");
        }
    }

    pub(super) fn new_part(&self, message_id: &MessageId, body: Body) -> Event {
        let part = Part {
            id: self.deps.id(PartId::make),
            session_id: self.record.session().clone(),
            message_id: message_id.clone(),
            body,
        };
        Event::PartUpdated { part: Box::new(part), at: now() }
    }
}

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

/// The request of a call that will not run; an answer that came first stays.
fn request_closed(part: &Part) -> Option<Event> {
    let Body::Tool(tool) = &part.body else { return None };
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

/// A tool call that will have no answer.
fn interrupted(part: &Part) -> Option<Event> {
    let Body::Tool(tool) = &part.body else { return None };
    let (input, start) = match &tool.state {
        ToolState::Pending { input, .. } => (input.clone(), now()),
        ToolState::Running { input, time, .. } => (input.clone(), time.start),
        ToolState::Completed { .. } | ToolState::Error { .. } => return None,
    };
    let mut metadata = serde_json::Map::new();
    metadata.insert("interrupted".to_owned(), true.into());
    let state = ToolState::Error {
        input,
        error: "Tool execution aborted".to_owned(),
        metadata: Some(metadata),
        time: domain::part::Span { start, end: Some(now()) },
    };
    let tool = domain::part::Tool { state, ..tool.clone() };
    Some(Event::PartUpdated { part: Box::new(Part { body: Body::Tool(tool), ..part.clone() }), at: now() })
}

/// Name of the error of a prompt whose model is not configured.
const MODEL_UNKNOWN: &str = "ProviderModelNotFoundError";

/// A model that is not here, or that settings do not allow.
fn model_unknown(asked: &ModelRef, known: &[String], is_allowed: bool) -> Error {
    let (provider, model) = (&asked.provider_id, &asked.model_id);
    let message = if is_allowed {
        format!("There is no model {provider}/{model} here; there are: {}", known.join(", "))
    } else {
        format!(
            "The settings of this session do not allow the model {provider}/{model}; `flotilla config explain` says whose"
        )
    };
    Error::new(MODEL_UNKNOWN, message)
}

/// An agent that neither this version nor the repository knows, or that is for subtasks only.
fn agent_unknown(asked: &str, rights: &Rights) -> Error {
    let known: Vec<String> = rights.agents(Mode::Primary).into_iter().map(|(name, _)| name).collect();
    Error::new(
        "AgentNotFoundError",
        format!("There is no agent {asked:?} that answers prompts here; there are: {}", known.join(", ")),
    )
}
