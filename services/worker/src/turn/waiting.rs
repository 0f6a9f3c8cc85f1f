//! Calls that wait for somebody else: a person's permission or answer, or a child session. What they wait for is read
//! from Postgres each time, so that it does not matter which message was lost or which worker asks.

use super::Loop;
use crate::{
    clock::now,
    record::{Stopped, answered},
    tools::{self, Tool, ToolError, plan_exit, question, run::Call, task},
};
use domain::{
    agent::Mode,
    event::Event,
    ids::{EventId, PartId, PermissionId, QuestionId, Timestamp},
    message::Error,
    part::{self, Ran, Span, ToolState},
    permission::{OnAsk, Rule, Verdict},
    request::{Answer, Id, Request, RequestBody},
    turn::{CallId, Input, NEEDS_HUMAN},
    wait::{Reason, Wait},
};
use serde_json::Map;
use store::{
    log::record::Progress,
    people::requests::{AnswerOutcome, NewAnswer, RequestRecord},
    session::tree::answers::ChildAnswer,
};

/// In the facts of a call: a person refused it without a word of what to do instead.
pub(crate) const REFUSED: &str = "refused";

/// For whom a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    Permission,
    Question,
    Child,
}

/// A call with its part.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) call_id: CallId,
    pub(super) part_id: PartId,
    pub(super) tool: part::Tool,
}

/// What became of a call that waited.
enum Settled {
    Waits(Wait),
    Ended,
    Started,
}

impl Loop {
    /// Begins a call that the loop itself performs. Doing it again changes nothing.
    pub(super) async fn ask_others(
        &mut self,
        call_id: CallId,
        part_id: PartId,
        tool: part::Tool,
    ) -> Result<(), Stopped> {
        let waiting = Waiting { call_id, part_id, tool };
        let input = waiting.tool.state.input().clone();
        let known = tools::find(&waiting.tool.tool).map_err(ToolError::Model);
        let checked = known.and_then(|tool| tools::check(tool, &input).map(|()| tool));
        let begun = match checked {
            Ok(Tool::Question) => question::read(input).map(|_| Awaited::Question),
            Ok(Tool::PlanExit) => Ok(Awaited::Question),
            Ok(_) if child_of(&waiting.tool.state).is_some() => Ok(Awaited::Child),
            Ok(_) => match task::read(input, &self.rights.agents(Mode::Subagent)) {
                Ok(task) => return self.dispatch(waiting, task).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match begun {
            Ok(awaited) => {
                self.waiting.insert(waiting.call_id, awaited);
                Ok(())
            }
            Err(ToolError::Model(text)) => self.end_call(&waiting, Err(text)).await,
            Err(ToolError::Broken(error)) => {
                self.happened.push_back(Input::Broken(error));
                Ok(())
            }
            Err(ToolError::Fenced) => Err(Stopped::Fenced),
        }
    }

    /// Looks whether what the waiting calls wait for has come, and tells the turn.
    pub(super) async fn settle_waiting(&mut self) -> Result<(), Stopped> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let list: Vec<(Waiting, Awaited)> = self
            .waiting
            .iter()
            .filter_map(|(call_id, awaited)| {
                let (part_id, tool) = self.conversation.tool_call(call_id)?;
                let waiting =
                    Waiting { call_id: call_id.clone(), part_id: part_id.clone(), tool: tool.clone() };
                Some((waiting, *awaited))
            })
            .collect();
        let (tenant, session) = (self.record.tenant(), self.record.session().clone());
        let parts: Vec<&PartId> = list.iter().map(|(waiting, _)| &waiting.part_id).collect();
        let store = self.deps.store.clone();
        let asked =
            answered(store.list_requests_of(tenant, &session, &parts)).await.map_err(Stopped::Store)?;
        let answers = answered(store.list_answers(tenant, &session, &parts)).await.map_err(Stopped::Store)?;
        let refusal = self.take_permissions(&asked);
        let mut waits = vec![];
        for (waiting, awaited) in list {
            let settled = match awaited {
                Awaited::Child => self.settle_child(&waiting, &answers).await?,
                Awaited::Permission if let Some(refusal) = &refusal => {
                    self.settle_refused(&waiting, &asked, refusal).await?
                }
                Awaited::Permission | Awaited::Question => self.settle_request(&waiting, &asked).await?,
            };
            match settled {
                Settled::Waits(wait) => waits.push((waiting.call_id, wait)),
                Settled::Ended | Settled::Started => {
                    self.waiting.remove(&waiting.call_id);
                }
            }
        }
        if !waits.is_empty() {
            self.happened.push_back(Input::Waits(waits));
        }
        Ok(())
    }

    /// Takes over what people allowed or refused that concerns other calls too: an answer "always", and a refusal, after
    /// which nothing more is asked in this step. Gives the refusal.
    fn take_permissions(&mut self, asked: &[RequestRecord]) -> Option<Answer> {
        for known in asked {
            if let (Some(Answer::Always { .. }), RequestBody::Permission { permission, always, .. }) =
                (&known.answer, &known.request.body)
            {
                self.rights.allow(permission, always);
            }
        }
        let permissions = asked.iter().filter(|known| matches!(known.request.id, Id::Permission(_)));
        let mut answers = permissions.filter_map(|known| known.answer.as_ref());
        answers.find(|answer| matches!(answer, Answer::Reject { .. })).cloned()
    }

    async fn settle_child(&mut self, waiting: &Waiting, answers: &[ChildAnswer]) -> Result<Settled, Stopped> {
        match answers.iter().find(|answer| answer.part_id == waiting.part_id) {
            None => {
                let reason = if self.out_of_budget { Reason::Budget } else { Reason::Children };
                Ok(Settled::Waits(Wait { reason, until: None }))
            }
            Some(answer) => {
                self.end_child(waiting, answer).await?;
                Ok(Settled::Ended)
            }
        }
    }

    async fn settle_request(
        &mut self,
        waiting: &Waiting,
        asked: &[RequestRecord],
    ) -> Result<Settled, Stopped> {
        let id = request_id(waiting);
        let known = asked.iter().find(|known| known.request.id == id);
        let Some(known) = known else { return self.ask(waiting, id).await };
        let answer = match &known.answer {
            Some(answer) => answer.clone(),
            // Not by this clock: a worker whose clock is behind would be woken and wait again, over and over.
            None if known.is_over => self.close_request(&id, (Answer::Expired, "its deadline")).await?,
            None if self.is_allowed(waiting, &[]) => {
                self.close_request(&id, (Answer::Once, "an answer \"always\"")).await?
            }
            None => return Ok(Settled::Waits(wait_for(&known.request))),
        };
        self.take_answer(waiting, &known.request.body, answer).await
    }

    /// Settles a call beside one that a person refused: its own answer counts if there is one, and it is refused with the
    /// same words otherwise.
    async fn settle_refused(
        &mut self,
        waiting: &Waiting,
        asked: &[RequestRecord],
        refusal: &Answer,
    ) -> Result<Settled, Stopped> {
        let id = request_id(waiting);
        let Some(known) = asked.iter().find(|known| known.request.id == id) else {
            return self.take_answer(waiting, &self.request(waiting, id).body, refusal.clone()).await;
        };
        let answer = match &known.answer {
            Some(answer) => answer.clone(),
            None => self.close_request(&id, (refusal.clone(), "the refusal of another call")).await?,
        };
        self.take_answer(waiting, &known.request.body, answer).await
    }

    /// Asks a person, unless that was answered "always" for the project or the tenant, or this session asks nobody.
    async fn ask(&mut self, waiting: &Waiting, id: Id) -> Result<Settled, Stopped> {
        let (tenant, session) = (self.record.tenant(), self.record.session().clone());
        if matches!(id, Id::Permission(_)) {
            let approvals = answered(self.deps.store.list_approvals_of(tenant, &session)).await;
            if self.is_allowed(waiting, &approvals.map_err(Stopped::Store)?) {
                self.start_allowed(waiting).await?;
                return Ok(Settled::Started);
            }
        }
        match self.fixed.on_ask {
            OnAsk::Park => {}
            OnAsk::Deny => {
                let text = "Nobody can be asked in this session. Do the work without this call.";
                self.end_call(waiting, Err(text.to_owned())).await?;
                return Ok(Settled::Ended);
            }
            OnAsk::Fail => {
                let text =
                    format!("{} needs a person's answer, and this session asks nobody", waiting.tool.tool);
                self.happened.push_back(Input::Broken(Error::new(NEEDS_HUMAN, text)));
                return Ok(Settled::Ended);
            }
        }
        let request = self.request(waiting, id);
        let wait = wait_for(&request);
        let events = vec![Event::RequestAsked(Box::new(request))];
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        Ok(Settled::Waits(wait))
    }

    /// Whether the rules of this session, and `approvals` beside them, allow a call without a question.
    fn is_allowed(&self, waiting: &Waiting, approvals: &[Rule]) -> bool {
        let agent = self.conversation.last_step().map_or("", |(message, _)| message.agent.as_str());
        let Ok(tool) = tools::find(&waiting.tool.tool) else { return false };
        self.rights.with(approvals).verdict(agent, tool, waiting.tool.state.input()) == Verdict::Allow
    }

    /// Ends a request in somebody's name, and gives the answer that counts: one that came first stays.
    pub(super) async fn close_request(
        &mut self,
        id: &Id,
        (answer, by): (Answer, &str),
    ) -> Result<Answer, Stopped> {
        let (tenant, event) = (self.record.tenant(), self.deps.id(EventId::make));
        let closed =
            self.deps.store.answer_request(tenant, id, NewAnswer { answer: &answer, by }, &event, now());
        match answered(closed).await.map_err(Stopped::Store)? {
            AnswerOutcome::Accepted { events, .. } => {
                self.deps.publisher.publish_events(tenant, self.record.session(), &events);
                Ok(answer)
            }
            AnswerOutcome::AlreadyAnswered { answer, .. } => Ok(answer),
        }
    }

    async fn take_answer(
        &mut self,
        waiting: &Waiting,
        asked: &RequestBody,
        answer: Answer,
    ) -> Result<Settled, Stopped> {
        match (asked, answer) {
            (RequestBody::Permission { .. }, Answer::Once | Answer::Always { .. }) => {
                self.start_allowed(waiting).await?;
                return Ok(Settled::Started);
            }
            (RequestBody::Question { .. }, Answer::Labels { labels }) if is_plan(&waiting.tool) => {
                self.plan_answered(waiting, &labels).await?;
            }
            (RequestBody::Question { questions }, Answer::Labels { labels }) => {
                let text = question::answered(questions, &labels);
                self.end_call(waiting, Ok(("Answered".to_owned(), text))).await?;
            }
            (_, Answer::Expired) => {
                let text = "Nobody answered in time. Do the work without it, or say what is missing.";
                self.end_call(waiting, Err(text.to_owned())).await?;
            }
            (_, Answer::Reject { message: Some(message) }) => {
                let text = format!("The person refused this call and says: {message}");
                self.end_call(waiting, Err(text)).await?;
            }
            (
                _,
                Answer::Reject { message: None }
                | Answer::Once
                | Answer::Always { .. }
                | Answer::Labels { .. },
            ) => self.refuse_call(waiting).await?,
        }
        Ok(Settled::Ended)
    }

    /// Runs a call that a person allowed: its intent is stored first.
    async fn start_allowed(&mut self, waiting: &Waiting) -> Result<(), Stopped> {
        let input = waiting.tool.state.input().clone();
        let time = Span { start: now(), end: None };
        let state = ToolState::Running { input: input.clone(), title: None, metadata: None, time };
        let events = self.tool_event(&waiting.call_id, state).into_iter().collect();
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        let known = tools::find(&waiting.tool.tool);
        if known.is_ok_and(|tool| tool.performer() == tools::Performer::Loop) {
            let Some((part_id, tool)) = self.conversation.tool_call(&waiting.call_id) else { return Ok(()) };
            let (part_id, tool) = (part_id.clone(), tool.clone());
            return Box::pin(self.ask_others(waiting.call_id.clone(), part_id, tool)).await;
        }
        self.tools.start(Call {
            exec_id: waiting.part_id.to_string(),
            tool: waiting.tool.tool.clone(),
            input,
            call_id: waiting.call_id.clone(),
            resumed: false,
        });
        Ok(())
    }

    /// Stores the answer of a call that the loop performed, and tells the turn: a title with the text, or an error for the
    /// model.
    pub(super) async fn end_call(
        &mut self,
        waiting: &Waiting,
        answer: Result<(String, String), String>,
    ) -> Result<(), Stopped> {
        let input = waiting.tool.state.input().clone();
        let (start, metadata) = match &waiting.tool.state {
            ToolState::Running { time, metadata, .. } => (time.start, metadata.clone()),
            ToolState::Pending { .. } | ToolState::Completed { .. } | ToolState::Error { .. } => {
                (now(), None)
            }
        };
        let state = match answer {
            Ok((title, output)) => {
                let metadata = metadata.unwrap_or_else(Map::new);
                let time = Ran::new(start, now());
                let output = output.into();
                ToolState::Completed { input, output, title, metadata, time, attachments: vec![] }
            }
            Err(error) => {
                let time = Span { start, end: Some(now()) };
                ToolState::Error { input, error, metadata, time }
            }
        };
        self.store_end(waiting, state).await
    }

    /// Ends a call that a person refused without a word: the turn ends with its step.
    pub(super) async fn refuse_call(&mut self, waiting: &Waiting) -> Result<(), Stopped> {
        let metadata = Map::from_iter([(REFUSED.to_owned(), true.into())]);
        let state = ToolState::Error {
            input: waiting.tool.state.input().clone(),
            error: "The person refused this call.".to_owned(),
            metadata: Some(metadata),
            time: Span { start: now(), end: Some(now()) },
        };
        self.store_end(waiting, state).await
    }

    async fn store_end(&mut self, waiting: &Waiting, state: ToolState) -> Result<(), Stopped> {
        let events = self.tool_event(&waiting.call_id, state).into_iter().collect();
        self.record.write(&mut self.conversation, events, Progress::Made).await?;
        self.happened.push_back(Input::ToolEnded(waiting.call_id.clone()));
        Ok(())
    }

    fn request(&self, waiting: &Waiting, id: Id) -> Request {
        let input = waiting.tool.state.input();
        let questions =
            if is_plan(&waiting.tool) { Ok(plan_exit::questions()) } else { question::read(input.clone()) };
        let asked = match (&id, questions) {
            (Id::Question(_), Ok(questions)) => RequestBody::Question { questions },
            (Id::Question(_) | Id::Permission(_), _) => {
                let agent = self.conversation.last_step().map_or("", |(message, _)| message.agent.as_str());
                let tool = tools::find(&waiting.tool.tool).ok();
                let used = tool.and_then(|tool| self.rights.to_ask(agent, tool, input));
                let (permission, patterns, always) = match used {
                    Some(used) => (used.permission.to_owned(), used.patterns, used.always),
                    None => (waiting.tool.tool.clone(), vec!["*".to_owned()], vec![]),
                };
                let metadata = input.as_object().cloned().unwrap_or_default();
                RequestBody::Permission { permission, patterns, always, metadata }
            }
        };
        let message_id = self.conversation.last_step().map(|(message, _)| message.id.clone());
        Request {
            session_id: self.record.session().clone(),
            message_id: message_id.unwrap_or_else(|| self.deps.id(domain::ids::MessageId::make)),
            part_id: waiting.part_id.clone(),
            call_id: waiting.call_id.clone(),
            body: asked,
            expires_at: Some(Timestamp(now().0.saturating_add(self.deps.request_wait_ms))),
            id,
        }
    }
}

/// Whether a call asks for the end of planning.
fn is_plan(tool: &part::Tool) -> bool {
    tools::find(&tool.tool) == Ok(Tool::PlanExit)
}

fn request_id(waiting: &Waiting) -> Id {
    match &waiting.tool.state {
        ToolState::Pending { .. } => Id::Permission(PermissionId::of(&waiting.part_id)),
        ToolState::Running { .. } | ToolState::Completed { .. } | ToolState::Error { .. } => {
            Id::Question(QuestionId::of(&waiting.part_id))
        }
    }
}

pub(super) fn wait_for(request: &Request) -> Wait {
    let reason = match request.id {
        Id::Permission(_) => Reason::Permission,
        Id::Question(_) => Reason::Question,
    };
    Wait { reason, until: request.expires_at }
}

/// The child that a call of `task` was dispatched to.
pub(super) fn child_of(state: &ToolState) -> Option<&str> {
    match state {
        ToolState::Running { metadata: Some(metadata), .. } => metadata.get("sessionId")?.as_str(),
        ToolState::Running { metadata: None, .. }
        | ToolState::Pending { .. }
        | ToolState::Completed { .. }
        | ToolState::Error { .. } => None,
    }
}
