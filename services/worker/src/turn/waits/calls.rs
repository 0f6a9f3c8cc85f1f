//! Calls that wait for a person's permission or answer, or for a child session. The state of each wait is read from Postgres every
//! time, so that neither a lost message nor a change of workers matters.

use super::{
    changes::CallChanges,
    children::{self, Dispatched},
    requests::{close_request, is_plan, request, request_id, wait_for},
    settling::{AnswerEffect, CallWait, Settlement, Settling, apply_always, effect_of, refusal},
};
use crate::{
    calls::permissions::Permissions,
    process::{clock::now, store_timeout::with_store_timeout},
    record::WriteError,
    tools::{
        egress::network,
        files::preview::Preview,
        outcome::{ToolError, completed_metadata},
        people::{
            plan_exit::{self, PlanAnswer},
            question,
        },
        registry, task,
        tool::{Performer, Tool},
    },
    turn::{
        session::Session,
        tool_calls::{LoopCall, TitledText, ToolCalls, child_of, running_metadata},
    },
};
use domain::{
    conversation::{
        message::{Error, Message, User},
        part::{Body, Ran, Span, Text, ToolState},
        request::{Id, RequestBody},
    },
    event::Event,
    ids::PartId,
    policy::{
        agent::{Agent, Mode},
        permission::{OnAsk, Rule},
    },
    turn::{call::CallId, outcome::NEEDS_HUMAN},
    wait::Wait,
};
use serde_json::{Map, json};
use std::collections::BTreeMap;
use store::log::record::Progress;

/// The calls of the newest step that wait for a person or a child session.
#[derive(Default)]
pub(in crate::turn) struct Waiting {
    calls: BTreeMap<CallId, CallWait>,
    /// Whether a settled call now waits for something else.
    has_new: bool,
}

/// The result of settling a waiting call.
enum Settled {
    Waits(Wait),
    Ended,
    Started,
    /// The loop started it, and it now waits for something else.
    Awaits(CallWait),
    /// The turn cannot continue.
    Broken(Error),
}

/// How a call of the loop begins.
enum Beginning {
    Awaits(CallWait),
    Ended,
    Broken(Error),
}

impl Waiting {
    /// Drops every call, because a step is being stopped or its calls are begun.
    pub(in crate::turn) fn clear(&mut self) {
        self.calls.clear();
    }

    /// Records a call that waits for a person's permission.
    pub(in crate::turn) fn await_permission(&mut self, call: CallId) {
        self.calls.insert(call, CallWait::Permission);
    }

    /// Begins a call that the loop itself performs. Beginning it again has no effect.
    pub(in crate::turn) async fn begin(
        &mut self,
        session: &mut Session,
        call: LoopCall,
        changes: &mut CallChanges,
    ) -> Result<(), WriteError> {
        match begin(session, &call).await? {
            Beginning::Awaits(awaited) => {
                self.calls.insert(call.call_id, awaited);
            }
            Beginning::Ended => changes.end(call.call_id),
            Beginning::Broken(error) => changes.break_turn(error),
        }
        Ok(())
    }

    /// Checks whether the waits of the calls are over.
    pub(in crate::turn) async fn settle(
        &mut self,
        session: &mut Session,
        tool_calls: &mut ToolCalls,
        is_budget_used_up: bool,
        changes: &mut CallChanges,
    ) -> Result<(), WriteError> {
        self.settle_once(session, tool_calls, is_budget_used_up, changes).await?;
        // A task that a person just allowed now waits for its child, and the turn must know that.
        if std::mem::take(&mut self.has_new) {
            self.settle_once(session, tool_calls, is_budget_used_up, changes).await?;
            self.has_new = false;
        }
        Ok(())
    }

    async fn settle_once(
        &mut self,
        session: &mut Session,
        tool_calls: &mut ToolCalls,
        is_budget_used_up: bool,
        changes: &mut CallChanges,
    ) -> Result<(), WriteError> {
        let calls: Vec<(LoopCall, CallWait)> = self
            .calls
            .iter()
            .filter_map(|(call_id, awaited)| Some((LoopCall::find(session, call_id)?, *awaited)))
            .collect();
        if calls.is_empty() {
            return Ok(());
        }
        let (tenant, id) = (session.record.tenant(), session.record.session().clone());
        let parts: Vec<&PartId> = calls.iter().map(|(call, _)| &call.part_id).collect();
        let store = session.deps.store.clone();
        let requests = with_store_timeout(store.list_requests_of(tenant, &id, &parts));
        let requests = requests.await.map_err(WriteError::Store)?;
        let answers = with_store_timeout(store.list_answers(tenant, &id, &parts));
        let answers = answers.await.map_err(WriteError::Store)?;
        apply_always(&mut session.permissions, &requests);
        let refusal = refusal(&requests);
        for (call, awaited) in calls {
            // A call before this one may have changed the permissions.
            let settling = Settling {
                requests: &requests,
                answers: &answers,
                is_allowed: is_allowed(session, &session.permissions, &call).await,
                is_budget_used_up,
                refusal: refusal.clone(),
            };
            let settlement = settling.next(&call, awaited);
            let record = requests.iter().find(|record| record.request.id == request_id(&call));
            let body = record.map(|record| record.request.body.clone());
            let settled = settle_one(session, tool_calls, &call, body, settlement).await?;
            if let Settled::Awaits(awaited) = settled {
                self.calls.insert(call.call_id.clone(), awaited);
                self.has_new = true;
            } else if !matches!(settled, Settled::Waits(_)) {
                self.calls.remove(&call.call_id);
            }
            match settled {
                Settled::Waits(wait) => changes.wait(call.call_id, wait),
                Settled::Ended => changes.end(call.call_id),
                Settled::Started => changes.start(call.call_id),
                Settled::Broken(error) => changes.break_turn(error),
                Settled::Awaits(_) => {}
            }
        }
        Ok(())
    }
}

async fn settle_one(
    session: &mut Session,
    tool_calls: &mut ToolCalls,
    call: &LoopCall,
    body: Option<RequestBody>,
    settlement: Settlement,
) -> Result<Settled, WriteError> {
    let answer = match settlement {
        Settlement::Wait(wait) => return Ok(Settled::Waits(wait)),
        Settlement::EndChild(answer) => {
            return children::end(session, call, &answer).await.map(|()| Settled::Ended);
        }
        Settlement::Ask => return ask(session, tool_calls, call).await,
        Settlement::Apply(answer) => answer,
        Settlement::Close { answer, by } => close_request(session, &request_id(call), answer, by).await?,
    };
    let body = match body {
        Some(body) => body,
        None => request(session, call).await.body,
    };
    match effect_of(&body, is_plan(&call.tool), answer) {
        AnswerEffect::Start => start_allowed(session, tool_calls, call).await,
        AnswerEffect::End(answer) => call.end(session, answer).await.map(|()| Settled::Ended),
        AnswerEffect::Reject => call.reject(session).await.map(|()| Settled::Ended),
        AnswerEffect::Plan(answer) => apply_plan_answer(session, call, answer).await.map(|()| Settled::Ended),
    }
}

async fn begin(session: &mut Session, call: &LoopCall) -> Result<Beginning, WriteError> {
    let input = call.tool.state.input().clone();
    let begun = match checked(session, call).await {
        Ok(Tool::Question) => question::read(input).map(|_| CallWait::Question),
        Ok(Tool::PlanExit) => Ok(CallWait::Question),
        Ok(Tool::Network) => {
            match network::read(input, &running_metadata(&call.tool.state), session.permissions.hosts()) {
                Ok(title) => {
                    let (text, metadata) = (network::answer_text(&title), Map::new());
                    let answer = Ok(TitledText { title, text, metadata });
                    return call.end(session, answer).await.map(|()| Beginning::Ended);
                }
                Err(error) => Err(error),
            }
        }
        Ok(_) if child_of(&call.tool.state).is_some() => Ok(CallWait::Child),
        Ok(_) => match task::read(input, &session.permissions.agents(Mode::Subagent)) {
            Ok(task) => {
                return Ok(match children::dispatch(session, call, &task).await? {
                    Dispatched::Runs => Beginning::Awaits(CallWait::Child),
                    Dispatched::Ended => Beginning::Ended,
                });
            }
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match begun {
        Ok(awaited) => Ok(Beginning::Awaits(awaited)),
        Err(ToolError::Model(text)) => call.end(session, Err(text)).await.map(|()| Beginning::Ended),
        Err(ToolError::Broken(error)) => Ok(Beginning::Broken(error)),
        Err(ToolError::Fenced) => Err(WriteError::Fenced),
    }
}

/// Whether these permissions allow a call without asking a person.
async fn is_allowed(session: &Session, permissions: &Permissions, call: &LoopCall) -> bool {
    let Ok(tool) = registry::find(&call.tool.tool) else { return false };
    let input = call.tool.state.input();
    session.judge_with(permissions).allows(tool, input).await
}

/// Whether the agent may read all these files, so that an answer may tell what they have.
async fn may_read(session: &Session, paths: &[String]) -> bool {
    for path in paths {
        if !session.judge().allows(Tool::Read, &json!({"filePath": path})).await {
            return false;
        }
    }
    !paths.is_empty()
}

/// The tool of a call whose arguments match its schema.
async fn checked(session: &Session, call: &LoopCall) -> Result<Tool, ToolError> {
    let tool = registry::find(&call.tool.tool).map_err(ToolError::Model)?;
    registry::check(session.converter(), tool, call.tool.state.input()).await?;
    Ok(tool)
}

/// Asks a person, unless an answer "always" for the project or the tenant covers the call, or the session asks no person.
async fn ask(
    session: &mut Session,
    tool_calls: &mut ToolCalls,
    call: &LoopCall,
) -> Result<Settled, WriteError> {
    if matches!(request_id(call), Id::Permission(_)) {
        // People are not asked about a call that cannot run.
        if let Err(ToolError::Model(text)) = checked(session, call).await {
            return call.end(session, Err(text)).await.map(|()| Settled::Ended);
        }
        let approvals =
            session.deps.store.list_approvals_of(session.record.tenant(), session.record.session());
        let approvals: Vec<Rule> = with_store_timeout(approvals).await.map_err(WriteError::Store)?;
        if is_allowed(session, &session.permissions.with(&approvals), call).await {
            return start_allowed(session, tool_calls, call).await;
        }
    }
    match session.profile.on_ask {
        OnAsk::Park => {
            let mut request = request(session, call).await;
            if let RequestBody::Permission { metadata, .. } = &mut request.body {
                let calls = tool_calls.running.silent_calls();
                match Box::pin(calls.preview(&session.workspace, call.to_run())).await {
                    Preview::Change(change) => metadata.extend(change),
                    Preview::Failure(failure) if may_read(session, &failure.paths).await => {
                        return call.end(session, Err(failure.answer)).await.map(|()| Settled::Ended);
                    }
                    Preview::Failure(failure) => metadata.extend(failure.written),
                }
            }
            let wait = wait_for(&request);
            session.write(vec![Event::RequestAsked(Box::new(request))], Progress::None).await?;
            Ok(Settled::Waits(wait))
        }
        OnAsk::Deny => {
            let text = "This session cannot ask a person. Do the work without this call.";
            call.end(session, Err(text.to_owned())).await.map(|()| Settled::Ended)
        }
        OnAsk::Fail => {
            let text = format!("{} needs a person's answer, and this session asks no person", call.tool.tool);
            Ok(Settled::Broken(Error::coded(NEEDS_HUMAN, text)))
        }
    }
}

/// Starts a call that a person or a rule allowed. Its intent is stored first.
async fn start_allowed(
    session: &mut Session,
    tool_calls: &mut ToolCalls,
    call: &LoopCall,
) -> Result<Settled, WriteError> {
    let input = call.tool.state.input().clone();
    let time = Span { start: now(), end: None };
    let metadata = registry::find(&call.tool.tool).ok().and_then(|tool| match tool {
        Tool::Network => Some(network::begun_metadata(&session.permissions.hosts_to_open(&input))),
        tool => registry::begun_metadata(tool),
    });
    let state = ToolState::Running { input, title: None, metadata, time };
    let events = session.tool_event(&call.call_id, state).into_iter().collect();
    session.write(events, Progress::None).await?;
    let Some(call) = LoopCall::find(session, &call.call_id) else {
        return Ok(Settled::Ended);
    };
    let is_of_loop = registry::find(&call.tool.tool).is_ok_and(|tool| tool.performer() == Performer::Loop);
    if !is_of_loop {
        tool_calls.mark_fresh(&call.call_id);
        tool_calls.start(&call);
        return Ok(Settled::Started);
    }
    Ok(match begin(session, &call).await? {
        Beginning::Awaits(awaited) => Settled::Awaits(awaited),
        Beginning::Ended => Settled::Ended,
        Beginning::Broken(error) => Settled::Broken(error),
    })
}

/// Applies a person's answer to a plan.
async fn apply_plan_answer(
    session: &mut Session,
    call: &LoopCall,
    answer: PlanAnswer,
) -> Result<(), WriteError> {
    match answer {
        PlanAnswer::Build => approve_plan(session, call).await,
        PlanAnswer::Stay => call.reject(session).await,
        PlanAnswer::Words(words) => {
            let text = format!("The person does not want the plan carried out yet and says: {words}");
            call.end(session, Err(text)).await
        }
    }
}

/// Ends planning: a synthetic message lets the agent that builds continue. The write that ends the call also stores the message, so
/// that it exists once, whichever worker takes the answer.
async fn approve_plan(session: &mut Session, call: &LoopCall) -> Result<(), WriteError> {
    let Some(user) = session.newest_user() else { return Ok(()) };
    let user = User { agent: Agent::Build.as_str().to_owned(), ..session.copy_of(user) };
    let id = user.id.clone();
    let state = ToolState::Completed {
        input: call.tool.state.input().clone(),
        output: plan_exit::DONE.to_owned().into(),
        title: "Switching to build agent".to_owned(),
        metadata: completed_metadata(Map::new()),
        time: Ran::new(call.begun_at(), now()),
        attachments: vec![],
    };
    let mut events: Vec<Event> = session.tool_event(&call.call_id, state).into_iter().collect();
    events.push(Event::MessageUpdated(Box::new(Message::User(user))));
    let time = Some(Span { start: now(), end: Some(now()) });
    let text = Text { time, ..Text::synthetic(plan_exit::APPROVED) };
    events.push(session.new_part(&id, Body::Text(text)));
    session.write(events, Progress::Made).await
}
