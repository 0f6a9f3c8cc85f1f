//! Child sessions, from both sides: a parent dispatches children and takes their answers; a child reports and answers.

use super::{
    copies::{self, NoCopy},
    quotas,
};
use crate::{
    conversation::entries,
    process::{clock::now, store_timeout::with_store_timeout},
    record::{Write, WriteError},
    tools::task::Task,
    turn::{
        session::Session,
        tool_calls::{LoopCall, TitledText, child_of, running_metadata},
    },
};
use bus::queue::QueueEntry;
use domain::{
    conversation::{
        message::{ModelRef, User},
        part::{self, Body, Part, Text, ToolState},
    },
    event::Event,
    ids::{EventId, MessageId, PartId, SessionId},
    limits,
    session::Outcome,
    turn::call::CallId,
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use store::{
    log::{messages::MessageWithParts, record::Progress},
    rows::session_row::ParentCall,
    session::{
        inputs::{Prompt, Reply, VariantChoice},
        mailbox::Kind,
        tree::{
            answers::ChildAnswer,
            children::{Dispatch, DispatchOutcome, NewChild},
        },
    },
};
use tokio::time::Instant;

/// Tool calls of a subtask that its parent shows. Older ones are left out.
const SUBTASK_SUMMARY_MAX: usize = 50;
/// Least time between two reports of a subtask to its parent; milliseconds.
const SUBTASK_REPORT_MS: u64 = 1_000;
/// Bytes of a subtask's answer that the parent's model reads; the child session holds the whole answer.
const SUBTASK_ANSWER_BYTES_MAX: usize = 50 * 1024;

/// The reports of a child to its parent.
#[derive(Default)]
pub(in crate::turn) struct ChildReports {
    reported_at: Option<Instant>,
    /// Whether the parent shows an older state than that of the newest call.
    is_behind: bool,
}

impl ChildReports {
    /// Shows this child's progress in the parent; soon, if that was done recently. Best effort: the next report, or the answer, repeats
    /// it.
    pub(in crate::turn) async fn report(&mut self, session: &Session) {
        let Some(call) = &session.profile.call else { return };
        self.is_behind = true;
        if !self.is_due(Instant::now()) {
            return;
        }
        (self.reported_at, self.is_behind) = (Some(Instant::now()), false);
        let event = session.deps.id(EventId::make);
        let (fence, summary) = (session.record.fence(), summary(session));
        let report = session.deps.store.report_child(fence, call, &summary, &event, now());
        match with_store_timeout(report).await {
            Ok(events) => {
                session.deps.publisher.publish_events(fence.tenant, &call.session, events.as_slice());
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot report to a parent");
            }
        }
    }

    /// When the loop must call [`ChildReports::tick`] at the latest.
    pub(in crate::turn) fn wake_at(&self) -> Option<Instant> {
        self.is_behind.then(|| self.due_at().unwrap_or_else(Instant::now))
    }

    /// Makes a report that had to wait.
    pub(in crate::turn) async fn tick(&mut self, session: &Session) {
        if self.is_behind {
            self.report(session).await;
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due_at().is_none_or(|at| now >= at)
    }

    fn due_at(&self) -> Option<Instant> {
        self.reported_at.map(|at| at + Duration::from_millis(SUBTASK_REPORT_MS))
    }
}

/// What became of a call of `task`.
pub(super) enum Dispatched {
    /// The child works, or will.
    Runs,
    /// The call has an answer: there is no child.
    Ended,
}

/// Creates the child of a call, or tells the model why not.
pub(super) async fn dispatch(
    session: &mut Session,
    call: &LoopCall,
    task: &Task,
) -> Result<Dispatched, WriteError> {
    let depth_max = session.subtask_depth_max;
    if u64::try_from(session.profile.depth).is_ok_and(|depth| depth >= depth_max) {
        let text = format!("Generations of subtasks are limited to {depth_max}. Do this yourself.");
        return call.end(session, Err(text)).await.map(|()| Dispatched::Ended);
    }
    let dispatch = if task.resumes.is_some() { Dispatch::Resumed } else { Dispatch::New };
    if dispatch == Dispatch::New
        && let Some(full) = quotas::find_full(&session.deps, session.record.tenant()).await
    {
        return call.end(session, Err(quotas::refusal(full))).await.map(|()| Dispatched::Ended);
    }
    let step = session.conversation().last_step().map(|(message, _)| message.id.clone());
    let Some((message_id, user)) = step.zip(session.newest_user().cloned()) else {
        return Ok(Dispatched::Runs);
    };
    let own_source = match copies::source_of(session, task).await {
        Ok(source) => source,
        Err(NoCopy::Refused(text)) => {
            let failed = Write::of(vec![Event::WorktreeFailed(text.clone())]);
            session.record.write(failed.with_progress(Progress::Made).with_next()).await?;
            return call.end(session, Err(text)).await.map(|()| Dispatched::Ended);
        }
        // The loop reads the abort next.
        Err(NoCopy::Aborted) => return Ok(Dispatched::Runs),
    };
    let child =
        NewChild { own_source, ..new_child(session, &Origin { call, message_id, user: &user }, task) };
    let ToolState::Running { input, time, .. } = call.tool.state.clone() else { return Ok(Dispatched::Runs) };
    let mut metadata = Map::new();
    metadata.insert("sessionId".to_owned(), json!(child.prompt.session_id));
    metadata.insert("parentSessionId".to_owned(), json!(session.record.session()));
    metadata.insert("model".to_owned(), json!(child.model));
    let title = Some(task.description.clone());
    let state = ToolState::Running { input, title, metadata: Some(metadata), time };
    let copied = child.own_source.is_some().then(|| Event::WorktreeReady(child.prompt.session_id.clone()));
    let events = session.tool_event(&call.call_id, state).into_iter().chain(copied).collect();
    match session.record.dispatch(events, &child, dispatch).await? {
        DispatchOutcome::Dispatched { .. } => {
            let (tenant, class) = (session.record.tenant(), session.profile.class);
            session.deps.wake(tenant, &child.prompt.session_id, class).await;
            Ok(Dispatched::Runs)
        }
        DispatchOutcome::TooMany => {
            let text = format!(
                "There are already {} subtasks in this tree of sessions, which is the limit. Do this yourself.",
                limits::SUBTASKS_PER_TREE_MAX
            );
            call.end(session, Err(text)).await.map(|()| Dispatched::Ended)
        }
        DispatchOutcome::NotFree => {
            let text = "None of your finished tasks has this id. Omit task_id for a new task.";
            call.end(session, Err(text.to_owned())).await.map(|()| Dispatched::Ended)
        }
    }
}

/// The call that dispatches a child, in its step.
struct Origin<'a> {
    call: &'a LoopCall,
    message_id: MessageId,
    /// The prompt that the step answers.
    user: &'a User,
}

fn new_child(session: &Session, origin: &Origin<'_>, task: &Task) -> NewChild {
    let deps = &session.deps;
    let session_id = task.resumes.clone().unwrap_or_else(|| deps.id(SessionId::make));
    let id = deps.id(MessageId::make);
    let part = Part {
        id: deps.id(PartId::make),
        session_id: session_id.clone(),
        message_id: id.clone(),
        body: Body::Text(Text { text: task.prompt.clone(), ..Text::default() }),
    };
    let agent = task.agent.clone();
    let own_model = || session.permissions.agent(&agent).and_then(|agent| agent.model.clone());
    let model = prompt_model(session, &origin.call.call_id).or_else(own_model);
    let is_model_chosen = model.is_some() || session.profile.chosen.model;
    let model = model.map_or_else(|| origin.user.model.clone(), Into::into);
    let variant = model.variant.clone().map_or(VariantChoice::Provider, VariantChoice::Named);
    let permissions = session.permissions.of_prompt(origin.user.tools.as_ref());
    let description = domain::text::head(&task.description, limits::NAME_BYTES_MAX / 2);
    NewChild {
        call: ParentCall {
            session: session.record.session().clone(),
            message_id: origin.message_id.clone(),
            part_id: origin.call.part_id.clone(),
        },
        title: format!("{description} (@{agent} subagent)"),
        agent,
        model: model.model,
        is_model_chosen,
        permissions: permissions.of_child(&origin.user.agent, &task.agent),
        own_source: None,
        prompt: Prompt {
            id,
            session_id,
            agent: None,
            model: None,
            variant,
            system: None,
            tools: None,
            format: None,
            parts: vec![part],
            dedupe: format!("task:{}", origin.call.part_id),
            body_sha256: [0; 32],
            traceparent: rpc::trace::current_traceparent(),
            event_ids: vec![deps.id(EventId::make), deps.id(EventId::make)],
            reply: Reply::Expected,
            only_when_idle: false,
            with_queue_position: false,
        },
        event_ids: [deps.id(EventId::make), deps.id(EventId::make)],
    }
}

/// The model that a prompt names for a task of its own. The model of a turn cannot choose one.
fn prompt_model(session: &Session, call_id: &CallId) -> Option<ModelRef> {
    let is_prompt = |entry: &&MessageWithParts| {
        entries::as_user(entry).is_some() && entries::origin(&entry.parts) == entries::Origin::Prompt
    };
    let prompts = session.conversation().entries().iter().rev().filter(is_prompt);
    let mut parts = prompts.flat_map(|entry| &entry.parts).map(|(_, part)| part);
    let part = parts.find(|part| part.id.as_str() == call_id)?;
    if let Body::Subtask(task) = &part.body { task.model.clone() } else { None }
}

/// Ends a call with the answer of its child. The failure of a child fails the call, not the parent.
pub(in crate::turn) async fn end(
    session: &mut Session,
    call: &LoopCall,
    answer: &ChildAnswer,
) -> Result<(), WriteError> {
    let mut call = call.clone();
    let mut known_title = String::new();
    let mut metadata = running_metadata(&call.tool.state);
    if let ToolState::Running { title, metadata: stored, .. } = &mut call.tool.state {
        known_title = title.clone().unwrap_or_default();
        // The reports of the child did not pass through this loop, so its copy of the metadata is older.
        if !answer.summary.is_null() {
            metadata.insert("summary".to_owned(), answer.summary.clone());
            *stored = Some(metadata);
        }
    }
    let files = copies::take_over(session, &call, answer).await?;
    let text = answer_text(answer, files.as_deref());
    let answer = match answer.outcome {
        Outcome::Done => Ok(TitledText { title: known_title, text, metadata: Map::new() }),
        Outcome::Failed | Outcome::Aborted | Outcome::NeedsHuman => Err(text),
    };
    call.end(session, answer).await
}

/// The text of a child's answer for the model. `files` tells about the copy of the files that it worked on.
fn answer_text(answer: &ChildAnswer, files: Option<&str>) -> String {
    let text = domain::text::head(&answer.text, SUBTASK_ANSWER_BYTES_MAX);
    let state = match answer.outcome {
        // OpenCode's word.
        Outcome::Done => "completed",
        Outcome::Failed | Outcome::Aborted | Outcome::NeedsHuman => answer.outcome.as_str(),
    };
    let id = &answer.child;
    let cut =
        if text.len() < answer.text.len() { "\n[cut: the rest is in the subtask's session]" } else { "" };
    let files = files.map(|files| format!("<task_files>\n{files}\n</task_files>\n")).unwrap_or_default();
    format!(
        "<task id=\"{id}\" state=\"{state}\">\n<task_result>\n{text}{cut}\n</task_result>\n{files}</task>"
    )
}

/// The answer of this session to its parent at the end of its turn, if it is a child.
pub(in crate::turn) fn answer_to_parent(
    session: &Session,
    outcome: Outcome,
    error: Option<&str>,
) -> Option<(SessionId, ChildAnswer)> {
    let call = session.profile.call.as_ref()?;
    let last_text = session.conversation().last_text().unwrap_or_default();
    let answer = ChildAnswer {
        child: session.record.session().clone(),
        part_id: call.part_id.clone(),
        outcome,
        text: error.unwrap_or(last_text).to_owned(),
        summary: summary(session),
    };
    Some((call.session.clone(), answer))
}

/// Aborts every session below this one, each by its own input: because this session was aborted, or because its turn failed. May
/// be repeated.
pub(in crate::turn) async fn abort_below(session: &Session) -> Result<(), WriteError> {
    let Some((step, parts)) = session.conversation().last_step() else { return Ok(()) };
    if !parts.iter().any(|(_, part)| is_dispatched(part)) {
        return Ok(());
    }
    let abort = session.inputs.iter().rev().find(|input| input.kind == Kind::Abort);
    let dedupe = abort.map_or_else(|| format!("broken:{}", step.id), |abort| abort.dedupe.clone());
    let tenant = session.record.tenant();
    let below = session.deps.store.abort_below_fenced(session.record.fence(), &dedupe);
    let below = with_store_timeout(below).await.map_err(WriteError::from)?;
    let entries: Vec<_> = below
        .iter()
        .map(|at| QueueEntry { tenant, session: &at.session, class: at.class, share: None })
        .collect();
    session.deps.bus.interrupt(&entries).await;
    Ok(())
}

/// Whether a part is a call that a child may still work on.
fn is_dispatched(part: &Part) -> bool {
    part.body.as_tool().is_some_and(|tool| child_of(&tool.state).is_some())
}

/// The newest tool calls, as the parent's tool call shows them.
fn summary(session: &Session) -> Value {
    let tools = session.conversation().newest_tools(SUBTASK_SUMMARY_MAX);
    tools.into_iter().map(|(id, tool)| summary_line(id, tool)).collect()
}

/// One line of a child's progress, as OpenCode's clients show it.
fn summary_line(id: &PartId, tool: &part::Tool) -> Value {
    let (status, title) = match &tool.state {
        ToolState::Pending { .. } => ("pending", None),
        ToolState::Running { title, .. } => ("running", title.clone()),
        ToolState::Completed { title, .. } => ("completed", Some(title.clone())),
        ToolState::Error { .. } => ("error", None),
    };
    json!({"id": id, "tool": tool.tool, "state": {"status": status, "title": title}})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn a_child_reports_at_most_once_in_a_while() {
        let now = Instant::now();
        let pause = Duration::from_millis(SUBTASK_REPORT_MS);
        for (reported_at, at, want) in [
            (None, now, true),
            (Some(now), now, false),
            (Some(now), now + pause / 2, false),
            (Some(now), now + pause, true),
        ] {
            let mut reports = ChildReports { reported_at, is_behind: false };
            assert_eq!(reports.is_due(at), want, "{reported_at:?} {at:?}");
            assert_eq!(reports.wake_at(), None, "the parent shows everything");
            reports.is_behind = true;
            let wake_at = reports.wake_at().expect("it has to report");
            assert!(reported_at.is_none_or(|reported_at| wake_at == reported_at + pause), "{reported_at:?}");
        }
    }

    #[test]
    fn the_model_reads_a_bounded_answer_of_a_child() {
        let answer = |text: String, outcome| ChildAnswer {
            child: "ses_2".parse().unwrap(),
            part_id: "prt_1".parse().unwrap(),
            outcome,
            text,
            summary: Value::Null,
        };
        let text = answer_text(&answer("it works".to_owned(), Outcome::Done), None);
        let want =
            "<task id=\"ses_2\" state=\"completed\">\n<task_result>\nit works\n</task_result>\n</task>";
        assert_eq!(text, want);
        let long =
            answer_text(&answer("x".repeat(SUBTASK_ANSWER_BYTES_MAX + 1), Outcome::Failed), Some("one"));
        assert!(long.ends_with("</task_result>\n<task_files>\none\n</task_files>\n</task>"));
        assert!(long.contains("state=\"failed\"") && long.contains("[cut: the rest is"), "{}", long.len());
    }
}
