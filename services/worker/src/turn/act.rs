//! The middle of a step: running its tools, storing what they say, stopping them.

use super::{
    Loop,
    opening::Delayed,
    waiting::{Awaited, Waiting},
};
use crate::{
    clock::now,
    commands::{self, Wanted},
    context, lower,
    record::Stopped,
    tools::{
        self, Performer, media,
        run::{Answer, Call, Report, Said},
    },
};
use domain::{
    event::Event,
    ids::PartId,
    mutant::{self, Mutant},
    part::{Body, Part, Ran, Span, Tool, ToolState, attached::File},
    turn::{CallId, Input, Stop},
};
use store::log::record::Progress;

impl Loop {
    /// Begins the calls whose intent is stored. A call that an earlier worker may have begun is attached to instead.
    pub(super) async fn run_tools(&mut self, calls: Vec<CallId>) -> Result<(), Stopped> {
        self.lease_runs().await;
        // Whoever watches learns at once that another worker goes on.
        if let Some(event) = self.take_over.take() {
            self.record.write(&mut self.conversation, vec![event], Progress::None).await?;
        }
        let calls = if self.need_guidance(&calls) {
            let Some(Delayed::Run(calls)) = self.when_guided(Delayed::Run(calls)) else { return Ok(()) };
            calls
        } else {
            calls
        };
        let Some(calls) = self.when_tracked(calls) else { return Ok(()) };
        self.begin_all(calls).await
    }

    /// Begins the calls, now that everything that they need is there.
    pub(super) async fn begin_all(&mut self, calls: Vec<CallId>) -> Result<(), Stopped> {
        self.waiting.clear();
        for call_id in calls {
            self.begin(call_id).await?;
        }
        self.settle_waiting().await
    }

    /// Starts a call, or notes for whom it waits.
    async fn begin(&mut self, call_id: CallId) -> Result<(), Stopped> {
        let resumed = !self.fresh.remove(&call_id);
        let Some((part_id, tool)) = self.conversation.tool_call(&call_id) else { return Ok(()) };
        let known = tools::find(&tool.tool);
        if matches!(tool.state, ToolState::Pending { .. }) {
            self.waiting.insert(call_id, Awaited::Permission);
            return Ok(());
        }
        if known.is_ok_and(|tool| tool.performer() == Performer::Loop) {
            let (part_id, tool) = (part_id.clone(), tool.clone());
            return self.ask_others(call_id, part_id, tool).await;
        }
        if self.is_of_a_person() && self.is_denied_to_a_person(tool.state.input()) {
            let (part_id, tool) = (part_id.clone(), tool.clone());
            let text = "This command is denied here by the rules of the session or the repository.";
            return self.end_call(&Waiting { call_id, part_id, tool }, Err(text.to_owned())).await;
        }
        let call = Call {
            exec_id: if mutant::on(Mutant::ExecIdPerEpoch) {
                format!("{part_id}-{}", self.record.fence().epoch)
            } else {
                part_id.to_string()
            },
            tool: tool.tool.clone(),
            input: tool.state.input().clone(),
            call_id,
            resumed,
        };
        self.tools.start(call);
        Ok(())
    }

    /// Stores what a tool says.
    pub(super) async fn report(&mut self, report: Report) -> Result<Option<Input>, Stopped> {
        let Some((_, tool)) = self.conversation.tool_call(&report.call_id) else { return Ok(None) };
        let ToolState::Running { input, time, .. } = tool.state.clone() else { return Ok(None) };
        let ended = Span { start: time.start, end: Some(now()) };
        let (answer, written) = match report.said {
            Said::Progress(progress) => {
                let state = ToolState::Running {
                    input,
                    title: Some(progress.title),
                    metadata: Some(progress.metadata),
                    time,
                };
                let event = self.tool_event(&report.call_id, state);
                self.record
                    .write(&mut self.conversation, event.into_iter().collect(), Progress::None)
                    .await?;
                return Ok(None);
            }
            Said::Answer(answer, written) => (answer, written),
        };
        let (state, todos) = match answer {
            Answer::Done(output) if !self.has_room(&output.media) => {
                let error = media::TOO_MANY.to_owned();
                (ToolState::Error { input, error, metadata: None, time: ended }, None)
            }
            Answer::Done(output) => {
                let state = ToolState::Completed {
                    input,
                    output: output.text.into(),
                    title: output.title,
                    metadata: output.metadata,
                    time: Ran::new(time.start, now()),
                    attachments: self.attached(output.media),
                };
                (state, output.todos)
            }
            Answer::Refused(error) => (ToolState::Error { input, error, metadata: None, time: ended }, None),
            Answer::Broken(error) => return Ok(Some(Input::Broken(error))),
            Answer::Fenced => return Err(Stopped::Fenced),
        };
        let mut events: Vec<Event> = written.into_iter().map(Event::FileEdited).collect();
        events.extend(self.tool_event(&report.call_id, state));
        events.extend(todos.map(Event::TodoUpdated));
        self.record.write(&mut self.conversation, events, Progress::Made).await?;
        self.report_to_parent().await;
        Ok(Some(Input::ToolEnded(report.call_id)))
    }

    /// Whether the step may give these files beside those that it has.
    fn has_room(&self, files: &[File]) -> bool {
        let parts = self.conversation.last_step().map(|(_, parts)| parts).unwrap_or_default();
        let known = parts.iter().flat_map(|(_, part)| match &part.body {
            Body::Tool(tool) => lower::shown(&tool.state),
            _ => vec![],
        });
        media::fits(known, files)
    }

    /// Files that a tool gave, as parts of the step that called it.
    fn attached(&self, files: Vec<File>) -> Vec<Part> {
        let Some((message, _)) = self.conversation.last_step() else { return vec![] };
        let part = |file| Part {
            id: self.deps.id(PartId::make),
            session_id: self.record.session().clone(),
            message_id: message.id.clone(),
            body: Body::File(file),
        };
        files.into_iter().map(part).collect()
    }

    /// Stops the model call and the tools. What was streamed is stored by whoever closes the step.
    pub(super) async fn stop(&mut self, stop: &Stop) -> Result<Input, Stopped> {
        self.back_off_until = None;
        self.opening.stop();
        self.snapshots.stop();
        (self.reading, self.expanding) = (None, None);
        self.waiting.clear();
        self.happened.clear();
        match stop {
            // What was streamed is stored by the write that closes the step: it is the one that takes the abort.
            Stop::Abort | Stop::Broken(_) => {
                let begun = self.begun_execs();
                self.tools.kill_all(begun).await;
                // The abort and everything before it is looked at; what comes later is a new turn.
                if *stop == Stop::Abort {
                    self.titling.stop();
                    self.read_inputs().await?;
                }
                self.abort_children().await?;
            }
            // Commands go on: the next worker attaches to them.
            Stop::HandOver => {
                self.tools.leave_all().await;
                if let Some(call) = self.model.take() {
                    let events = call.abandon(&self.record);
                    self.record.write(&mut self.conversation, events, Progress::None).await?;
                }
            }
        }
        Ok(Input::Stopped)
    }

    /// The commands of calls that are stored as begun: also those that an earlier worker began and nobody attached to, and
    /// one whose start is still on its way, which the epoch of the kill shuts out.
    fn begun_execs(&self) -> Vec<String> {
        let parts = self.conversation.last_step().map(|(_, parts)| parts).unwrap_or_default();
        let begun = parts.iter().filter_map(|(_, part)| match &part.body {
            Body::Tool(Tool { tool, state: ToolState::Running { input, .. }, .. }) => {
                Some(tools::execs(tool, part.id.as_str(), input))
            }
            _ => None,
        });
        let asked: Vec<Wanted> = context::commands(self.conversation.entries()).collect();
        begun.flatten().chain(asked.iter().flat_map(|wanted| commands::execs(&wanted.part))).collect()
    }

    pub(super) fn tool_event(&self, call_id: &str, state: ToolState) -> Option<Event> {
        let (part_id, tool) = self.conversation.tool_call(call_id)?;
        let (message, _) = self.conversation.last_step()?;
        let part = Part {
            id: part_id.clone(),
            session_id: self.record.session().clone(),
            message_id: message.id.clone(),
            body: Body::Tool(Tool { state, ..tool.clone() }),
        };
        Some(Event::PartUpdated { part: Box::new(part), at: now() })
    }
}
