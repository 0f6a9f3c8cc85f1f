//! Child sessions, seen from both sides: a parent dispatches and takes answers, a child reports and answers.

use super::{
    Loop,
    waiting::{Awaited, Waiting, child_of},
};
use crate::{
    clock::now,
    record::{Stopped, answered},
    tools::task::Task,
};
use bus::queue::QueueEntry;
use domain::{
    ids::{EventId, MessageId, PartId, SessionId},
    limits,
    message::{MessageTime, User},
    part::{Body, Part, Text, ToolState},
    session::Outcome,
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use store::session::{
    inputs::{Prompt, Reply},
    mailbox::Kind,
    row::ParentCall,
    tree::{
        answers::ChildAnswer,
        children::{Dispatch, DispatchOutcome, NewChild},
    },
};
use tokio::time::Instant;

impl Loop {
    /// Makes the child of a call, or tells the model why not.
    pub(super) async fn dispatch(&mut self, waiting: Waiting, task: Task) -> Result<(), Stopped> {
        if self.fixed.depth >= limits::SUBTASK_DEPTH_MAX {
            let text =
                format!("A subtask may be {} levels deep. Do this yourself.", limits::SUBTASK_DEPTH_MAX);
            return self.end_call(&waiting, Err(text)).await;
        }
        let Some((message, user)) = self.asker() else { return Ok(()) };
        let child = self.new_child(&waiting, &task, message, &user);
        let mut metadata = Map::new();
        metadata.insert("sessionId".to_owned(), json!(child.prompt.user.session_id));
        metadata.insert("parentSessionId".to_owned(), json!(self.record.session()));
        metadata.insert("model".to_owned(), json!(user.model.model));
        let ToolState::Running { input, time, .. } = waiting.tool.state.clone() else { return Ok(()) };
        let title = Some(task.description.clone());
        let state = ToolState::Running { input, title, metadata: Some(metadata), time };
        let events = self.tool_event(&waiting.call_id, state).into_iter().collect();
        let dispatch = if task.resumes.is_some() { Dispatch::Resumed } else { Dispatch::New };
        match self.record.dispatch(&mut self.conversation, events, &child, dispatch).await? {
            DispatchOutcome::Dispatched { .. } => {
                let session = &child.prompt.user.session_id;
                self.deps.wake(self.record.tenant(), session, self.fixed.class).await;
                self.waiting.insert(waiting.call_id, Awaited::Child);
                Ok(())
            }
            DispatchOutcome::TooMany => {
                let text = format!(
                    "There were {} subtasks already, which is as many as one session may have. Do this yourself.",
                    limits::SUBTASKS_PER_TREE_MAX
                );
                self.end_call(&waiting, Err(text)).await
            }
            DispatchOutcome::NotFree => {
                let text =
                    "There is no finished task of this id among yours. Leave task_id out for a new task.";
                self.end_call(&waiting, Err(text.to_owned())).await
            }
        }
    }

    /// The step that asks, and the prompt that it answers.
    fn asker(&self) -> Option<(MessageId, User)> {
        let (message, _) = self.conversation.last_step()?;
        Some((message.id.clone(), self.conversation.newest_user(&self.inputs)?.clone()))
    }

    fn new_child(&self, waiting: &Waiting, task: &Task, message_id: MessageId, user: &User) -> NewChild {
        let session_id = task.resumes.clone().unwrap_or_else(|| self.deps.id(SessionId::make));
        let id = self.deps.id(MessageId::make);
        let text = Text { text: task.prompt.clone(), ..Text::default() };
        let part = Part {
            id: self.deps.id(PartId::make),
            session_id: session_id.clone(),
            message_id: id.clone(),
            body: Body::Text(text),
        };
        let agent = task.agent.clone();
        let own_model = || self.rights.agent(&agent).and_then(|agent| agent.model.clone());
        let model = self.model_of_task(&waiting.call_id).or_else(own_model);
        let is_model_chosen = model.is_some() || self.fixed.chosen.model;
        let model = model.map_or_else(|| user.model.clone(), Into::into);
        NewChild {
            call: ParentCall {
                session: self.record.session().clone(),
                message_id,
                part_id: waiting.part_id.clone(),
            },
            title: format!(
                "{} (@{agent} subagent)",
                domain::text::head(&task.description, limits::NAME_BYTES_MAX / 2)
            ),
            agent: agent.clone(),
            model: model.model.clone(),
            is_model_chosen,
            permissions: self.rights.of_prompt(user.tools.as_ref()).of_child(&user.agent),
            prompt: Prompt {
                user: User {
                    id,
                    session_id,
                    time: MessageTime { created: now(), completed: None },
                    agent,
                    model,
                    system: None,
                    tools: None,
                    format: None,
                    summary: None,
                },
                parts: vec![part],
                dedupe: format!("task:{}", waiting.part_id),
                body_sha256: [0; 32],
                traceparent: rpc::trace::current_traceparent(),
                event_ids: vec![self.deps.id(EventId::make), self.deps.id(EventId::make)],
                reply: Reply::Expected,
                only_when_idle: false,
            },
            event_id: self.deps.id(EventId::make),
        }
    }

    /// Takes over what a child said: its failure is the call's, not the parent's.
    pub(super) async fn end_child(&mut self, waiting: &Waiting, answer: &ChildAnswer) -> Result<(), Stopped> {
        let text = domain::text::head(&answer.text, limits::SUBTASK_ANSWER_BYTES_MAX);
        let (id, state) = (&answer.child, answer.outcome.as_str());
        let cut =
            if text.len() < answer.text.len() { "\n[cut: the rest is in the subtask's session]" } else { "" };
        let output = format!(
            "<task id=\"{id}\" state=\"{state}\">\n<task_result>\n{text}{cut}\n</task_result>\n</task>"
        );
        let (mut waiting, mut title) = (waiting.clone(), String::new());
        if let ToolState::Running { title: known, metadata, .. } = &mut waiting.tool.state {
            title = known.clone().unwrap_or_default();
            // The reports went past this loop: what it knows of the call is older.
            if !answer.summary.is_null() {
                metadata.get_or_insert_with(Map::new).insert("summary".to_owned(), answer.summary.clone());
            }
        }
        let answer = if answer.outcome == Outcome::Done { Ok((title, output)) } else { Err(output) };
        self.end_call(&waiting, answer).await
    }

    /// What this session says to its parent at the end of its turn, if it is a child.
    pub(super) fn answer_for_parent(
        &self,
        outcome: Outcome,
        error: Option<&str>,
    ) -> Option<(SessionId, ChildAnswer)> {
        let call = self.fixed.call.as_ref()?;
        let said = self.conversation.last_text().unwrap_or_default();
        let text = error.unwrap_or(said).to_owned();
        let (child, part_id) = (self.record.session().clone(), call.part_id.clone());
        Some((call.session.clone(), ChildAnswer { child, part_id, outcome, text, summary: self.summary() }))
    }

    /// The newest tool calls, as the parent's tool call shows them.
    fn summary(&self) -> Value {
        let tools = self.conversation.newest_tools(limits::SUBTASK_SUMMARY_MAX);
        tools.into_iter().map(|(id, tool)| line(id, tool)).collect()
    }

    /// Shows the parent how far this child is. Best effort: the next report, or the answer, says more.
    pub(super) async fn report_to_parent(&mut self) {
        let Some(call) = &self.fixed.call else { return };
        let least = Duration::from_millis(limits::SUBTASK_REPORT_MS);
        if self.reported_at.is_some_and(|at| at.elapsed() < least) {
            return;
        }
        self.reported_at = Some(Instant::now());
        let summary = self.summary();
        let event = self.deps.id(EventId::make);
        let fence = self.record.fence();
        let report = self.deps.store.report_child(fence, call, &summary, &event, now());
        match answered(report).await {
            Ok(events) => self.deps.publisher.publish_events(fence.tenant, &call.session, events.as_slice()),
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a parent was not told of its child"
                );
            }
        }
    }

    /// Ends every session below this one, each by an input of its own: for the abort that this one was told of, or for a
    /// turn that broke. May be repeated.
    pub(super) async fn abort_children(&mut self) -> Result<(), Stopped> {
        let (tenant, session) = (self.record.tenant(), self.record.session().clone());
        let Some((step, parts)) = self.conversation.last_step() else { return Ok(()) };
        if !parts.iter().any(|(_, part)| dispatched(part)) {
            return Ok(());
        }
        let abort = self.inputs.iter().rev().find(|input| input.kind == Kind::Abort);
        let dedupe = abort.map_or_else(|| format!("broken:{}", step.id), |abort| abort.dedupe.clone());
        let below = answered(self.deps.store.abort_below(tenant, &session, &dedupe));
        let below = below.await.map_err(Stopped::Store)?;
        let entries: Vec<_> = below
            .iter()
            .map(|at| QueueEntry { tenant, session: &at.session, class: at.class, share: None })
            .collect();
        self.deps.bus.interrupt(&entries).await;
        Ok(())
    }
}

/// Whether a part is a call that a child may still work on.
fn dispatched(part: &Part) -> bool {
    matches!(&part.body, Body::Tool(tool) if child_of(&tool.state).is_some())
}

/// One line of a child's progress, as OpenCode's clients show it.
fn line(id: &PartId, tool: &domain::part::Tool) -> Value {
    let (status, title) = match &tool.state {
        ToolState::Pending { .. } => ("pending", None),
        ToolState::Running { title, .. } => ("running", title.clone()),
        ToolState::Completed { title, .. } => ("completed", Some(title.clone())),
        ToolState::Error { .. } => ("error", None),
    };
    json!({"id": id, "tool": tool.tool, "state": {"status": status, "title": title}})
}
