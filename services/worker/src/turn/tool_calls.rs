//! The tool calls of a step: starting them, storing their results, and ending those that the loop performs itself.

use super::session::Session;
use crate::{
    calls::run::RunningCalls,
    conversation::{
        entries::{self, CommandPrompt},
        marks, model_view,
    },
    process::clock::now,
    record::{Write, WriteError},
    tools::{
        context::{Call, CallEvent, Report},
        media,
        outcome::{Output, ToolError, completed_metadata},
        registry,
        tool::Tool,
    },
    turn::prompt::commands,
};
use domain::{
    conversation::part::{self, Body, Part, Ran, Span, ToolState, attached::File},
    event::Event,
    ids::PartId,
    turn::{call::CallId, signal::Signal},
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use store::log::record::Progress;

/// The calls of the newest step that run in separate tasks.
pub(super) struct ToolCalls {
    pub(super) running: RunningCalls,
    /// Calls that this loop stored as begun and has not started. An earlier worker may have started any other call.
    fresh: BTreeSet<CallId>,
    /// The answers of the commands that the end of the step ended, by exec id.
    pub(super) ended_commands: BTreeMap<String, Output>,
}

impl ToolCalls {
    pub(super) fn new(session: &Session) -> Self {
        let (deps, identity) = (Arc::clone(&session.deps), session.identity.clone());
        let running = RunningCalls::new(deps, identity, session.workspace.clone());
        Self { running, fresh: BTreeSet::new(), ended_commands: BTreeMap::new() }
    }

    /// Records the calls of a new step: this loop stored them, and no worker has started them.
    pub(super) fn begin_step(&mut self, calls: impl IntoIterator<Item = CallId>) {
        self.fresh = calls.into_iter().collect();
    }

    /// Records that this loop just stored the intent of a call.
    pub(super) fn mark_fresh(&mut self, call: &CallId) {
        self.fresh.insert(call.clone());
    }

    /// Whether no worker has started any of these calls.
    pub(super) fn are_fresh(&self, calls: &[CallId]) -> bool {
        calls.iter().all(|call| self.fresh.contains(call))
    }

    /// Whether the newest step has a call that is not over and for which the sandbox is needed.
    pub(super) fn is_sandbox_expected(&self, session: &Session) -> bool {
        let parts = session.conversation().last_step().map_or(&[][..], |(_, parts)| parts);
        let mut tools = parts.iter().filter_map(|(_, part)| part.body.as_tool());
        tools.any(|tool| !tool.state.is_over() && registry::find(&tool.tool).is_ok_and(Tool::uses_sandbox))
    }

    /// Starts a call whose intent is stored, or attaches to it if an earlier worker may have started it.
    pub(super) fn start(&mut self, call: &LoopCall) {
        let resumed = !self.fresh.remove(&call.call_id);
        self.running.start(Call { resumed, ..call.to_run() });
    }
}

/// A call of the newest step, with its part.
#[derive(Debug, Clone)]
pub(super) struct LoopCall {
    pub(super) call_id: CallId,
    pub(super) part_id: PartId,
    pub(super) tool: part::Tool,
    /// As in [`Call`].
    pub(super) person_timeout_ms: Option<u32>,
}

/// The answer of a call: a title with the text for the model, or an error for the model.
pub(super) type CallAnswer = Result<TitledText, String>;

/// The text of an answer, with a title and facts for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TitledText {
    pub(super) title: String,
    pub(super) text: String,
    /// Added to the metadata that the call already has.
    pub(super) metadata: Map<String, Value>,
}

impl LoopCall {
    /// A call of the newest step.
    pub(super) fn find(session: &Session, call_id: &CallId) -> Option<Self> {
        let (part_id, tool) = session.conversation().tool_call(call_id)?;
        let person_timeout_ms = session.conversation().person_timeout_ms();
        Some(Self {
            call_id: call_id.clone(),
            part_id: part_id.clone(),
            tool: tool.clone(),
            person_timeout_ms,
        })
    }

    /// The call as it runs for the first time.
    pub(super) fn to_run(&self) -> Call {
        Call {
            // The same for every worker: the sandbox runs an exec id once.
            exec_id: self.part_id.to_string(),
            tool: self.tool.tool.clone(),
            input: self.tool.state.input().clone(),
            call_id: self.call_id.clone(),
            resumed: false,
            person_timeout_ms: self.person_timeout_ms,
        }
    }

    /// The state of the call with its answer.
    pub(super) fn ended(&self, answer: CallAnswer) -> ToolState {
        let input = self.tool.state.input().clone();
        let metadata = match &self.tool.state {
            ToolState::Running { metadata, .. } => metadata.clone(),
            ToolState::Pending { .. } | ToolState::Completed { .. } | ToolState::Error { .. } => None,
        };
        let start = self.begun_at();
        match answer {
            Ok(TitledText { title, text, metadata: added }) => ToolState::Completed {
                input,
                output: text.into(),
                title,
                metadata: completed_metadata(metadata.into_iter().flatten().chain(added).collect()),
                time: Ran::new(start, now()),
                attachments: vec![],
            },
            Err(error) => ToolState::Error { input, error, metadata, time: Span { start, end: Some(now()) } },
        }
    }

    /// When the call began; the current time if it has not begun.
    pub(super) fn begun_at(&self) -> domain::ids::Timestamp {
        match &self.tool.state {
            ToolState::Running { time, .. } => time.start,
            ToolState::Pending { .. } | ToolState::Completed { .. } | ToolState::Error { .. } => now(),
        }
    }

    /// Stores the answer of a call that the loop performed.
    pub(super) async fn end(&self, session: &mut Session, answer: CallAnswer) -> Result<(), WriteError> {
        self.store(session, self.ended(answer)).await
    }

    /// Ends a call that a person rejected without a message. The turn ends with its step.
    pub(super) async fn reject(&self, session: &mut Session) -> Result<(), WriteError> {
        let state = ToolState::Error {
            input: self.tool.state.input().clone(),
            error: rejection(&self.tool.tool).to_owned(),
            metadata: Some(marks::rejected()),
            time: Span { start: now(), end: Some(now()) },
        };
        self.store(session, state).await
    }

    async fn store(&self, session: &mut Session, state: ToolState) -> Result<(), WriteError> {
        let events = session.tool_event(&self.call_id, state).into_iter().collect();
        session.write(events, Progress::Made).await
    }
}

/// The error of a call that a person rejected, in OpenCode's words: its terminal client strikes such calls through.
fn rejection(tool: &str) -> &'static str {
    if tool == Tool::Question.name() {
        "The user dismissed this question"
    } else {
        "The user rejected permission to use this specific tool call."
    }
}

/// The child session to which a running call of `task` was dispatched.
pub(super) fn child_of(state: &ToolState) -> Option<&str> {
    match state {
        ToolState::Running { metadata: Some(metadata), .. } => metadata.get("sessionId")?.as_str(),
        ToolState::Running { metadata: None, .. }
        | ToolState::Pending { .. }
        | ToolState::Completed { .. }
        | ToolState::Error { .. } => None,
    }
}

/// The effect of a report.
enum ReportEffect {
    /// The call continues: its new state.
    Continue(ToolState),
    /// The call ended: its last state, and the new to-do list.
    End {
        state: ToolState,
        todos: Option<Value>,
    },
    /// The turn ends.
    Break(domain::conversation::message::Error),
    Fenced,
}

/// Stores a report of a running call. Returns a signal once the call has ended.
pub(super) async fn store_report(
    session: &mut Session,
    report: Report,
) -> Result<Option<Signal>, WriteError> {
    let Some(call) = LoopCall::find(session, &report.call_id) else { return Ok(None) };
    let ToolState::Running { input, time, .. } = call.tool.state.clone() else { return Ok(None) };
    let (effect, written) = match report.event {
        CallEvent::Progress(progress) => {
            let (title, metadata) = (Some(progress.title), Some(progress.metadata));
            (ReportEffect::Continue(ToolState::Running { input, title, metadata, time }), BTreeSet::new())
        }
        CallEvent::Ended { result, written } => (effect_of(session, input, time, result), written),
    };
    let (state, todos) = match effect {
        ReportEffect::Continue(state) => {
            let events = session.tool_event(&report.call_id, state).into_iter().collect();
            session.write(events, Progress::None).await?;
            return Ok(None);
        }
        ReportEffect::End { state, todos } => (state, todos),
        ReportEffect::Break(error) => return Ok(Some(Signal::Broken(error))),
        ReportEffect::Fenced => return Err(WriteError::Fenced),
    };
    let mut events: Vec<Event> = written.into_iter().map(Event::FileEdited).collect();
    events.extend(session.tool_event(&report.call_id, state));
    events.extend(todos.map(Event::TodoUpdated));
    if leads_to_next_step(session, &report.call_id) {
        // If the worker crashes before that step is stored, the call has not answered, and the next worker attaches to its command.
        session.record.write(Write::of(events).with_progress(Progress::Made).with_next()).await?;
    } else {
        session.write(events, Progress::Made).await?;
    }
    Ok(Some(Signal::ended(report.call_id)))
}

/// Whether the next step begins as soon as this call has ended.
fn leads_to_next_step(session: &Session, call_id: &CallId) -> bool {
    let conversation = session.conversation();
    let parts = conversation.last_step().map(|(_, parts)| parts).unwrap_or_default();
    let mut calls = parts.iter().filter_map(|(_, part)| part.body.as_tool());
    conversation.goes_on_after_step() && calls.all(|call| call.call_id == *call_id || call.state.is_over())
}

fn effect_of(session: &Session, input: Value, time: Span, result: Result<Output, ToolError>) -> ReportEffect {
    let ended = Span { start: time.start, end: Some(now()) };
    let error = |input, error| ReportEffect::End {
        state: ToolState::Error { input, error, metadata: None, time: ended },
        todos: None,
    };
    match result {
        Ok(output) if !has_room(session, &output.media) => error(input, media::TOO_MANY.to_owned()),
        Ok(output) => ReportEffect::End {
            state: ToolState::Completed {
                input,
                output: output.text.into(),
                title: output.title,
                metadata: output.metadata,
                time: Ran::new(time.start, now()),
                attachments: attachments(session, output.media),
            },
            todos: output.todos,
        },
        Err(ToolError::Model(text)) => error(input, domain::text::without_nul(&text).into_owned()),
        Err(ToolError::Broken(error)) => ReportEffect::Break(error),
        Err(ToolError::Fenced) => ReportEffect::Fenced,
    }
}

/// Whether the step may return these files in addition to those that it already returned.
fn has_room(session: &Session, files: &[File]) -> bool {
    let parts = session.conversation().last_step().map(|(_, parts)| parts).unwrap_or_default();
    let tools = parts.iter().filter_map(|(_, part)| part.body.as_tool());
    media::fits(tools.flat_map(|tool| model_view::answer_files(&tool.state)), files)
}

/// Files that a tool returned, as parts of its step.
fn attachments(session: &Session, files: Vec<File>) -> Vec<Part> {
    let Some((message, _)) = session.conversation().last_step() else { return vec![] };
    let part = |file| Part {
        id: session.deps.id(PartId::make),
        session_id: session.record.session().clone(),
        message_id: message.id.clone(),
        body: Body::File(file),
    };
    files.into_iter().map(part).collect()
}

/// The commands of calls that are stored as begun. This includes those of an earlier worker that this loop has not attached
/// to, and a command whose start has not reached the sandbox yet: the epoch of the kill prevents that start.
pub(super) fn begun_execs(session: &Session) -> Vec<String> {
    let conversation = session.conversation();
    let parts = conversation.last_step().map(|(_, parts)| parts).unwrap_or_default();
    let begun = parts.iter().filter_map(|(_, part)| {
        let tool = part.body.as_tool()?;
        match &tool.state {
            ToolState::Running { input, .. } => Some(registry::exec_ids(&tool.tool, part.id.as_str(), input)),
            ToolState::Pending { .. } | ToolState::Completed { .. } | ToolState::Error { .. } => None,
        }
    });
    let prompts: Vec<CommandPrompt> = entries::command_prompts(conversation.entries()).collect();
    begun.flatten().chain(prompts.iter().flat_map(|prompt| commands::exec_ids(&prompt.part))).collect()
}

/// The metadata of a call so far.
pub(super) fn running_metadata(state: &ToolState) -> Map<String, Value> {
    match state {
        ToolState::Running { metadata, .. } => metadata.clone().unwrap_or_default(),
        ToolState::Pending { .. } | ToolState::Completed { .. } | ToolState::Error { .. } => Map::new(),
    }
}
