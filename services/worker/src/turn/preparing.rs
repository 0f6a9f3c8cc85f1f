//! Before a prompt is answered: what the repository says is read where deciding needs it, and what its commands say is put
//! into the prompt, once, so that every step and every worker asks with the same words.
// Continues in `commands`, which expands.

use super::{Loop, opening::Delayed};
use crate::{
    clock::now,
    commands::{self, Expanded, Means, Wanted},
    context,
    record::Stopped,
    tools::ToolError,
};
use domain::{
    agent::Mode,
    command::{CommandRequest, Progress as Far},
    event::{Event, Status},
    message::{Error, Message, User},
    part::{Body, Part, Text, attached::Subtask},
    text::without_nul,
    turn::Input,
};
use std::sync::Arc;
use store::log::record::Progress;
use tokio_util::task::AbortOnDropHandle;

/// Who does the task of a command that names no agent.
const SUBAGENT: &str = "general";

/// Commands that are being expanded.
pub(super) type Expanding = AbortOnDropHandle<Result<Vec<Expanded>, ToolError>>;

/// Waits for the commands that are being expanded. Cancel-safe.
pub(super) async fn settled(expanding: &mut Option<Expanding>) -> Result<Vec<Expanded>, ToolError> {
    let Some(task) = expanding else { return std::future::pending().await };
    let expanded = task.await;
    *expanding = None;
    expanded.unwrap_or_else(|error| Err(ToolError::Broken(Error::new("UnknownError", error.to_string()))))
}

/// What becomes of a turn that cannot make its prompt ready.
pub(super) fn broken(error: ToolError) -> Result<Input, Stopped> {
    match error {
        ToolError::Fenced => Err(Stopped::Fenced),
        ToolError::Broken(error) => Ok(Input::Broken(error)),
        ToolError::Model(text) => Ok(Input::Broken(Error::new("UnknownError", text))),
    }
}

impl Loop {
    /// Reads what the repository says, if this turn has not, and expands what prompts ask for.
    pub(super) async fn prepare(&mut self) -> Result<Option<Input>, Stopped> {
        self.lease_runs().await;
        if context::commands(self.conversation.entries()).next().is_some() {
            let mut events: Vec<Event> = self.take_over.take().into_iter().collect();
            events.push(Event::SessionStatus(Status::Busy));
            self.record.write(&mut self.conversation, events, Progress::None).await?;
        }
        match self.when_guided(Delayed::Preparation) {
            Some(_) => Ok(self.expand_commands()),
            None => Ok(None),
        }
    }

    /// Expands what prompts ask for, now that it is known what the repository says.
    pub(super) fn expand_commands(&mut self) -> Option<Input> {
        let wanted: Vec<Wanted> = context::commands(self.conversation.entries()).collect();
        let Some(first) = wanted.first() else { return Some(Input::Prepared) };
        let means = Means {
            deps: Arc::clone(&self.deps),
            identity: self.tools.identity().clone(),
            workspace: self.workspace.clone(),
            guidance: Arc::clone(self.opening.guidance()),
            rights: self.rights.of_prompt(first.user.tools.as_ref()),
            aside: self.tools.aside(),
        };
        self.expanding = Some(Expanding::new(tokio::spawn(commands::expand_all(means, wanted))));
        None
    }

    /// Keeps what the commands say.
    pub(super) async fn expanded(
        &mut self,
        expanded: Result<Vec<Expanded>, ToolError>,
    ) -> Result<Option<Input>, Stopped> {
        let expanded = match expanded {
            Ok(expanded) => expanded,
            Err(error) => return broken(error).map(Some),
        };
        let mut events: Vec<Event> = vec![];
        for command in expanded {
            events.extend(self.words_of(command));
        }
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        Ok(Some(Input::Prepared))
    }

    /// A prompt with what its command says.
    fn words_of(&self, expanded: Expanded) -> Vec<Event> {
        let Expanded { wanted: Wanted { part, asked, user }, command, text, named } = expanded;
        let Body::Text(before) = &part.body else { return vec![] };
        let text = without_nul(&text).into_owned();
        let asked = CommandRequest { progress: Far::Expanded, ..asked };
        let agent = command.agent.clone().unwrap_or_else(|| user.agent.clone());
        let is_subagent = self.rights.agent(&agent).and_then(|agent| agent.mode) == Some(Mode::Subagent)
            || domain::agent::Agent::parse(&agent)
                .is_some_and(|agent| domain::agent::Agent::SUBAGENTS.contains(&agent));
        let is_task = command.subtask.unwrap_or(is_subagent);
        let mut events = vec![];
        let (shown, more) = if is_task {
            let task = Subtask {
                prompt: text,
                description: command.description.unwrap_or_else(|| asked.name.clone()),
                agent: command.agent.unwrap_or_else(|| SUBAGENT.to_owned()),
                model: command.model,
                command: Some(asked.name.clone()),
            };
            // What the person wrote stays, for people.
            let shown = Text { ignored: Some(true), synthetic: Some(true), ..before.clone() };
            (shown, std::iter::once(Body::Subtask(task)).chain(named).collect())
        } else {
            let mut changed = User { agent, ..user.clone() };
            changed.model.model = command.model.unwrap_or(changed.model.model);
            changed.model.variant = command.variant.or(changed.model.variant);
            if changed != user {
                events.push(Event::MessageUpdated(Box::new(Message::User(changed))));
            }
            (Text { text, ..before.clone() }, named)
        };
        let shown = Part { body: Body::Text(asked.mark(shown)), ..part };
        let message = shown.message_id.clone();
        events.push(Event::PartUpdated { part: Box::new(shown), at: now() });
        for body in more {
            let told = match &body {
                Body::Agent(agent) => Some(Text::synthetic(agent.told())),
                _ => None,
            };
            events.push(self.new_part(&message, body));
            events.extend(told.map(|text| self.new_part(&message, Body::Text(text))));
        }
        events
    }

    /// Says of the commands of the turn that they were executed, once.
    pub(super) fn commands_over(&self) -> Vec<Event> {
        let Some((step, _)) = self.conversation.last_step() else { return vec![] };
        let over = context::expanded_commands(self.conversation.entries());
        over.flat_map(|(part, text, asked)| {
            let done = CommandRequest { progress: Far::Executed, ..asked };
            let part = Part { body: Body::Text(done.mark(text.clone())), ..part.clone() };
            let executed = Event::CommandExecuted {
                name: done.name,
                arguments: done.arguments,
                message_id: step.id.clone(),
            };
            [Event::PartUpdated { part: Box::new(part), at: now() }, executed]
        })
        .collect()
    }
}
