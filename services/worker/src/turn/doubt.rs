//! A model that makes the same call with the same answer again and again: whether it may go on so is a permission of its own,
//! which rules give or a person. What was asked stands in the request, and what was decided on the repeated call, so that every
//! worker goes on from there.
// Continues in `waiting`, for the requests of calls that did not run yet.

use super::{
    Loop,
    waiting::{REFUSED, wait_for},
};
use crate::{
    clock::now,
    record::{Stopped, answered},
};
use domain::{
    event::Event,
    ids::{PermissionId, Timestamp},
    limits::DOOM_LOOP_CALLS,
    message::Error,
    part::{Body, Part, Span, Tool, ToolState},
    permission::{OnAsk, Verdict},
    request::{Answer, Id, Request, RequestBody},
    turn::{Input, NEEDS_HUMAN},
};
use serde_json::{Map, Value};
use store::{log::record::Progress, people::requests::RequestRecord};

/// The name of the permission, and of the mark on a repeated call that says how far the asking is: OpenCode's.
pub(crate) const PERMISSION: &str = "doom_loop";
/// The mark of a call after which the model may go on.
pub(crate) const GOES_ON: &str = "allowed";
/// The mark of a call about which a person is being asked.
const ASKED: &str = "asked";
/// The mark of a call about which nobody need be asked any more.
const OVER: &str = "over";

/// What becomes of a model that repeats itself.
enum Decided {
    GoesOn,
    /// It goes on and is told something instead of the answer that it knows.
    Told(String),
    /// The turn ends with its step.
    Refused,
}

impl Loop {
    /// Finds out whether the model may go on repeating the newest call, and stores it.
    pub(super) async fn doubt(&mut self) -> Result<Input, Stopped> {
        let Some((part, tool)) = self.conversation.newest_call() else { return Ok(Input::Doubted(None)) };
        let (part, tool) = (part.clone(), tool.clone());
        let id = Id::Permission(PermissionId::of_loop(&part.id));
        let (tenant, session) = (self.record.tenant(), self.record.session().clone());
        let asked = answered(self.deps.store.list_requests_of(tenant, &session, &[&part.id])).await;
        let asked = asked.map_err(Stopped::Store)?.into_iter().find(|known| known.request.id == id);
        let verdict = self.rights.repeats(&self.asking_agent(), &tool.tool);
        let decided = match (asked, verdict) {
            (Some(RequestRecord { answer: Some(answer), .. }), _) => self.of_answer(answer, &tool),
            (Some(known), _) if known.is_over => {
                let answer = self.close_request(&id, (Answer::Expired, "its deadline")).await?;
                self.of_answer(answer, &tool)
            }
            (Some(_), Verdict::Allow) => {
                let answer = self.close_request(&id, (Answer::Once, "an answer \"always\"")).await?;
                self.of_answer(answer, &tool)
            }
            (Some(known), Verdict::Ask | Verdict::Deny) => {
                return Ok(Input::Doubted(Some(wait_for(&known.request))));
            }
            (None, Verdict::Allow) => Decided::GoesOn,
            (None, Verdict::Deny) => Decided::Told(told("A rule of this session forbids that.")),
            (None, Verdict::Ask) => {
                let approvals = answered(self.deps.store.list_approvals_of(tenant, &session)).await;
                let rights = self.rights.with(&approvals.map_err(Stopped::Store)?);
                match self.fixed.on_ask {
                    _ if rights.repeats(&self.asking_agent(), &tool.tool) == Verdict::Allow => {
                        Decided::GoesOn
                    }
                    OnAsk::Park => return self.ask_of_loop(id, &part, &tool).await,
                    OnAsk::Deny => Decided::Told(told("Nobody can be asked whether that is right.")),
                    OnAsk::Fail => {
                        let text = format!("{} And this session asks nobody", repeated(&tool.tool));
                        return Ok(Input::Broken(Error::new(NEEDS_HUMAN, text)));
                    }
                }
            }
        };
        self.decide_loop(&part, tool, decided).await
    }

    fn asking_agent(&self) -> String {
        self.conversation.last_step().map_or_else(String::new, |(message, _)| message.agent.clone())
    }

    fn of_answer(&mut self, answer: Answer, tool: &Tool) -> Decided {
        match answer {
            Answer::Once => Decided::GoesOn,
            Answer::Always { .. } => {
                self.rights.allow(PERMISSION, std::slice::from_ref(&tool.tool));
                Decided::GoesOn
            }
            Answer::Reject { message: Some(message) } => {
                Decided::Told(told(&format!("The person refused to let that go on and says: {message}")))
            }
            Answer::Reject { message: None } | Answer::Expired | Answer::Labels { .. } => Decided::Refused,
        }
    }

    /// Asks a person, and marks the call: whoever closes the turn finds the request by it.
    async fn ask_of_loop(&mut self, id: Id, part: &Part, tool: &Tool) -> Result<Input, Stopped> {
        let mut metadata = Map::new();
        metadata.insert("tool".to_owned(), tool.tool.clone().into());
        metadata.insert("input".to_owned(), tool.state.input().clone());
        let (permission, names) = (PERMISSION.to_owned(), vec![tool.tool.clone()]);
        let request = Request {
            id,
            session_id: self.record.session().clone(),
            message_id: part.message_id.clone(),
            part_id: part.id.clone(),
            call_id: tool.call_id.clone(),
            body: RequestBody::Permission { permission, patterns: names.clone(), always: names, metadata },
            expires_at: Some(Timestamp(now().0.saturating_add(self.deps.request_wait_ms))),
        };
        let wait = wait_for(&request);
        let mut events: Vec<Event> = self.take_over.take().into_iter().collect();
        events.push(Event::RequestAsked(Box::new(request)));
        events.push(changed(part, tool, marked(tool.state.clone(), ASKED)));
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        Ok(Input::Doubted(Some(wait)))
    }

    async fn decide_loop(&mut self, part: &Part, tool: Tool, decided: Decided) -> Result<Input, Stopped> {
        let state = match decided {
            Decided::GoesOn => marked(tool.state.clone(), GOES_ON),
            Decided::Told(error) => marked(failed(&tool.state, error, Map::new()), OVER),
            Decided::Refused => {
                let metadata = Map::from_iter([(REFUSED.to_owned(), true.into())]);
                let error = told("The person refused to let that go on.");
                marked(failed(&tool.state, error, metadata), OVER)
            }
        };
        let mut events: Vec<Event> = self.take_over.take().into_iter().collect();
        events.push(changed(part, &tool, state));
        self.record.write(&mut self.conversation, events, Progress::Made).await?;
        Ok(Input::Doubted(None))
    }

    /// Takes back what is asked about the newest call: the turn ends, or another prompt is answered first.
    pub(super) fn doubt_over(&self) -> Vec<Event> {
        let Some((part, tool)) = self.conversation.newest_call().filter(|(_, tool)| is_asked(&tool.state))
        else {
            return vec![];
        };
        let id = Id::Permission(PermissionId::of_loop(&part.id));
        let closed = Event::RequestAnswered { id, answer: Answer::Reject { message: None } };
        vec![closed, changed(part, tool, marked(tool.state.clone(), OVER))]
    }
}

fn is_asked(state: &ToolState) -> bool {
    mark(state) == Some(ASKED)
}

/// How far the asking about a call is.
pub(crate) fn mark(state: &ToolState) -> Option<&str> {
    let metadata = match state {
        ToolState::Completed { metadata, .. } => Some(metadata),
        ToolState::Error { metadata, .. } => metadata.as_ref(),
        ToolState::Pending { .. } | ToolState::Running { .. } => None,
    };
    metadata?.get(PERMISSION).and_then(Value::as_str)
}

fn marked(mut state: ToolState, mark: &str) -> ToolState {
    match &mut state {
        ToolState::Completed { metadata, .. } => drop(metadata.insert(PERMISSION.to_owned(), mark.into())),
        ToolState::Error { metadata, .. } => {
            metadata.get_or_insert_default().insert(PERMISSION.to_owned(), mark.into());
        }
        ToolState::Pending { .. } | ToolState::Running { .. } => {}
    }
    state
}

/// A call with an error in place of its answer, which the model had twice before.
fn failed(state: &ToolState, error: String, metadata: Map<String, Value>) -> ToolState {
    let time = match state {
        ToolState::Completed { time, .. } => Span { start: time.start, end: Some(time.end) },
        ToolState::Running { time, .. } | ToolState::Error { time, .. } => *time,
        ToolState::Pending { .. } => Span { start: now(), end: Some(now()) },
    };
    ToolState::Error { input: state.input().clone(), error, metadata: Some(metadata), time }
}

fn changed(part: &Part, tool: &Tool, state: ToolState) -> Event {
    let body = Body::Tool(Tool { state, ..tool.clone() });
    Event::PartUpdated { part: Box::new(Part { body, ..part.clone() }), at: now() }
}

fn repeated(tool: &str) -> String {
    format!("The model made the same call of {tool} {DOOM_LOOP_CALLS} times in a row with the same answer.")
}

/// What the model reads in place of the answer.
fn told(why: &str) -> String {
    format!(
        "You made this call {DOOM_LOOP_CALLS} times in a row with the same answer. {why} Do something else."
    )
}
