//! The loop's view of a session: the record with the conversation, the waiting inputs, and everything that is fixed for its
//! life. Every concern of the loop reads and writes through it.

use crate::{
    calls::{judge::Judge, permissions::Permissions, readers::FilesReaders},
    conversation::memory::Conversation,
    process::{
        clock::now,
        deps::Deps,
        sandbox::{Identity, SandboxStart},
        store_timeout::with_store_timeout,
    },
    record::{Record, Write, WriteError},
    repository::{
        above::SettingsAbove,
        workspace::{Workspace, WorkspaceOrigin},
    },
    tools::egress::network,
};
use chassis::tasks;
use convert_client::converter::TenantConverter;
use domain::{
    conversation::{
        message::{Assistant, MessageTime, ModelRef, User},
        part::{self, Body, Part, ToolState},
    },
    event::Event,
    ids::{MessageId, PartId, SessionId},
    policy::permission::OnAsk,
    session::{Class, ExplicitChoices},
};
use settings::Settings;
use std::sync::Arc;
use store::{
    log::record::Progress,
    rows::session_row::{self, ParentCall},
    session::mailbox::{Kind, MailboxInput},
};

/// Generations of subtasks below a root session, unless settings allow fewer: a deeper tree costs more in
/// coordination than it gains. A deeper subtask is refused, and the model reads why.
const SUBTASK_DEPTH_MAX: u64 = 5;

/// The constants of a session's life.
pub(super) struct Profile {
    /// The tool call that a child answers.
    pub(super) call: Option<ParentCall>,
    pub(super) root: SessionId,
    pub(super) depth: i16,
    pub(super) class: Class,
    pub(super) on_ask: OnAsk,
    /// The agent for prompts that name none.
    pub(super) agent: String,
    /// The model for prompts that name none.
    pub(super) model: ModelRef,
    /// Whether a client chose the agent and the model.
    pub(super) chosen: ExplicitChoices,
}

/// The loop's view of a session.
pub(super) struct Session {
    pub(super) deps: Arc<Deps>,
    pub(super) record: Record,
    /// The inputs in the mailbox at the last look.
    pub(super) inputs: Vec<MailboxInput>,
    /// Those that were read with the conversation, before the first look.
    first_inputs: Option<Vec<MailboxInput>>,
    pub(super) identity: Identity,
    pub(super) workspace: Workspace,
    pub(super) profile: Profile,
    pub(super) permissions: Permissions,
    /// Generations of subtasks below a root session.
    pub(super) subtask_depth_max: u64,
    /// The announcement of this worker, for the first write.
    take_over: Option<Event>,
    /// The start of the sandbox for a call that the model is still writing.
    sandbox_start: Option<SandboxStart>,
}

impl Session {
    /// Starts with what the loop read of the session. `take_over` announces the worker.
    pub(super) fn new(
        record: Record,
        inputs: Vec<MailboxInput>,
        stored: session_row::Session,
        above: &SettingsAbove,
        take_over: Event,
    ) -> Self {
        let deps = record.deps();
        let identity = Identity {
            tenant: record.tenant(),
            session: record.session().clone(),
            epoch: record.fence().epoch,
            workspace: stored.workspace_id.clone(),
            opening: Arc::new(stored.workspace_opening.into()),
        };
        let readers = FilesReaders::of(&stored.source, &above.settings.git_credentials);
        let origin = WorkspaceOrigin {
            project: stored.info.project_id,
            source: stored.source,
            was_opened: stored.has_workspace,
            above: above.clone(),
        };
        let model = ModelRef { provider_id: stored.info.model.provider_id, model_id: stored.info.model.id };
        Self {
            inputs: vec![],
            first_inputs: Some(inputs),
            permissions: Permissions::new(stored.permissions, readers),
            workspace: Workspace::new(Arc::clone(&deps), identity.clone(), origin),
            identity,
            profile: Profile {
                call: stored.call,
                root: stored.root_id,
                depth: stored.depth,
                class: stored.class,
                on_ask: stored.on_ask,
                agent: stored.info.agent,
                model,
                chosen: stored.chosen,
            },
            subtask_depth_max: SUBTASK_DEPTH_MAX,
            take_over: Some(take_over),
            sandbox_start: None,
            deps,
            record,
        }
    }

    /// Applies the settings of the platform and the repository.
    pub(super) fn configure(&mut self, settings: &Arc<Settings>) {
        self.permissions.configure(Arc::clone(settings));
        self.subtask_depth_max = settings.subagent_depth.unwrap_or(SUBTASK_DEPTH_MAX).min(SUBTASK_DEPTH_MAX);
    }

    /// Notes what commands may reach from the next tool on: what the settings allow, and what people have allowed.
    pub(super) fn allow_hosts(&self, settings: &Settings) {
        let granted = (!settings.askable_hosts().is_empty()).then(|| {
            let opened = network::opened(self.conversation().turn_calls());
            self.permissions.approved_hosts().into_iter().chain(opened).collect()
        });
        self.workspace.egress().allow(settings, granted);
    }

    /// Closes the hosts that people have allowed in the turn, which is over.
    pub(super) fn close_hosts(&self) {
        let opened = network::opened(self.conversation().turn_calls());
        if !opened.is_empty() {
            self.workspace.egress().close_hosts_except(self.permissions.approved_hosts());
        }
    }

    /// The conversation, with everything that this loop has written.
    pub(super) fn conversation(&self) -> &Conversation {
        self.record.conversation()
    }

    /// The prompt that the turn answers.
    pub(super) fn newest_user(&self) -> Option<&User> {
        self.conversation().newest_user(&self.inputs)
    }

    /// The conversions of its tenant.
    pub(super) fn converter(&self) -> TenantConverter<'_> {
        self.deps.converter.of(self.identity.tenant)
    }

    /// The agent of the newest step.
    pub(super) fn step_agent(&self) -> &str {
        self.conversation().last_step().map_or("", |(step, _)| step.agent.as_str())
    }

    /// What the rules say about the calls of the newest step.
    pub(super) fn judge(&self) -> Judge<'_> {
        self.judge_with(&self.permissions)
    }

    /// The same by other permissions.
    pub(super) fn judge_with<'a>(&'a self, permissions: &'a Permissions) -> Judge<'a> {
        Judge { permissions, agent: self.step_agent(), converter: self.converter() }
    }

    /// The newest step with its parts, if it has no answer: an attempt failed, or a worker died.
    pub(super) fn open_step(&self) -> Option<(&Assistant, &[(u64, Part)])> {
        self.conversation().last_step().filter(|(step, _)| step.finish.is_none() && step.error.is_none())
    }

    /// Whether an abort is in the mailbox.
    pub(super) fn is_aborted(&self) -> bool {
        self.inputs.iter().any(|input| input.kind == Kind::Abort)
    }

    /// Whether the workspace may have files. One that starts empty has none before the model has begun a call.
    pub(super) fn may_have_files(&self) -> bool {
        let conversation = self.conversation();
        let parts = || conversation.entries().iter().flat_map(|entry| &entry.parts);
        let has_call = || parts().any(|(_, part)| part.body.as_tool().is_some());
        self.workspace.has_source() || !conversation.is_whole() || has_call()
    }

    /// Reads the mailbox and the new part of the conversation.
    pub(super) async fn read_inputs(&mut self) -> Result<(), WriteError> {
        // The mailbox first: every prompt in it is then among the messages.
        if let Some(inputs) = self.first_inputs.take() {
            self.inputs = inputs;
            Box::pin(self.record.complete_conversation()).await.map_err(WriteError::Store)?;
        } else {
            self.inputs = self.list_inputs().await?;
            Box::pin(self.record.read_conversation()).await.map_err(WriteError::Store)?;
        }
        let newest = self.inputs.last().map(|input| input.seq);
        if self.is_aborted() {
            // A prompt may have come after the abort, and be among the messages. Only its input says that it came later.
            self.inputs = self.list_inputs().await?;
        }
        if let Some(newest) = newest {
            self.record.note_read(newest);
        }
        Ok(())
    }

    /// Reads the mailbox without taking its inputs.
    pub(super) async fn list_inputs(&self) -> Result<Vec<MailboxInput>, WriteError> {
        let (tenant, session) = (self.record.tenant(), self.record.session());
        let inputs = self.deps.store.list_inputs(tenant, session, self.record.input_ack());
        with_store_timeout(inputs).await.map_err(WriteError::Store)
    }

    /// Writes events.
    pub(super) async fn write(&mut self, events: Vec<Event>, progress: Progress) -> Result<(), WriteError> {
        self.record.write(Write::of(events).with_progress(progress)).await
    }

    /// Writes the announcement of this worker before `events`, if it has not been written yet.
    pub(super) async fn write_announced(
        &mut self,
        events: Vec<Event>,
        progress: Progress,
    ) -> Result<(), WriteError> {
        let events = self.announced(events);
        self.write(events, progress).await
    }

    /// Prepends the announcement of this worker to `events`, if it has not been written yet. The caller must write the
    /// events.
    pub(super) fn announced(&mut self, events: Vec<Event>) -> Vec<Event> {
        self.take_over.take().into_iter().chain(events).collect()
    }

    /// The announcement of this worker, if it has not been written yet, for a write that may not happen.
    pub(super) fn announcement(&self) -> Option<Event> {
        self.take_over.clone()
    }

    /// A new part.
    pub(super) fn new_part(&self, message_id: &MessageId, body: Body) -> Event {
        let part = Part {
            id: self.deps.id(PartId::make),
            session_id: self.record.session().clone(),
            message_id: message_id.clone(),
            body,
        };
        Event::PartUpdated { part: Box::new(part), at: now() }
    }

    /// A call of the newest step in a new state.
    pub(super) fn tool_event(&self, call_id: &str, state: ToolState) -> Option<Event> {
        let (part_id, tool) = self.conversation().tool_call(call_id)?;
        let (message, _) = self.conversation().last_step()?;
        let part = Part {
            id: part_id.clone(),
            session_id: self.record.session().clone(),
            message_id: message.id.clone(),
            body: Body::Tool(part::Tool { state, ..tool.clone() }),
        };
        Some(Event::PartUpdated { part: Box::new(part), at: now() })
    }

    /// A user message with the same settings under a new id.
    pub(super) fn copy_of(&self, user: &User) -> User {
        User {
            id: self.deps.id(MessageId::make),
            time: MessageTime { created: now(), completed: None },
            summary: None,
            ..user.clone()
        }
    }

    /// Opens the files and starts the sandbox for a call that the model is still writing, once for each loop. The call itself reports what fails.
    pub(super) fn start_sandbox(&mut self) {
        if self.sandbox_start.is_some() {
            return;
        }
        let (deps, identity) = (Arc::clone(&self.deps), self.identity.clone());
        let workspace = self.workspace.clone();
        self.sandbox_start = Some(tasks::spawn_owned("files", async move {
            workspace.ready().await.ok()?;
            let sandbox = deps.sandbox.clone();
            let start = async move { sandbox.start(&identity).await };
            Some(deps.tasks.spawn("sandbox start", start))
        }));
    }

    /// Ends the session's process in the sandbox, also one that is still starting.
    pub(super) fn release_sandbox(&mut self) {
        let start = self.sandbox_start.take();
        if start.is_none() && !self.workspace.is_open() {
            return;
        }
        self.deps.sandbox.release(&self.deps.tasks, &self.identity, start);
    }
}
