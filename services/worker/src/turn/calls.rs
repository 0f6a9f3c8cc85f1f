//! Calls that a prompt itself asks for, without a model: tasks for subagents, and a command of the shell.

use super::Loop;
use crate::{
    clock::now,
    context::{self, Origin},
    record::Stopped,
    tools::{self, Tool},
};
use domain::{
    event::{Event, Status},
    ids::MessageId,
    message::{Message, ModelRef},
    part::{Body, attached::Subtask},
    permission::Verdict,
};
use serde_json::Value;
use store::log::{messages::MessageWithParts, record::Progress};

impl Loop {
    /// What the prompt asks for becomes calls of a step: begun, and stored as such.
    pub(super) async fn begin_calls(&mut self) -> Result<(), Stopped> {
        let Some(user) = self.conversation.newest_user(&self.inputs).cloned() else { return Ok(()) };
        let asked: Vec<_> = context::calls(self.conversation.entries()).cloned().collect();
        let mut message = super::step::assistant(self.deps.id(MessageId::make), &user);
        message.finish = Some("stop".to_owned());
        let mut begun = vec![];
        for part in asked {
            let call = match &part.body {
                Body::Subtask(task) => {
                    if begun.is_empty() {
                        (message.mode, message.agent) = (task.agent.clone(), task.agent.clone());
                    }
                    // Whoever gave the task wants to hear of its answer.
                    message.finish = Some("tool-calls".to_owned());
                    tools::task::call(&part.id, task, now())
                }
                Body::Text(text) => {
                    let Some(command) = domain::command::shell_of(text) else { continue };
                    tools::bash::call(&part.id, command, now())
                }
                _ => continue,
            };
            begun.push((part.id.to_string(), call));
        }
        if begun.is_empty() {
            return Ok(());
        }
        let id = message.id.clone();
        let mut events: Vec<Event> = self.take_over.take().into_iter().collect();
        events.push(Event::SessionStatus(Status::Busy));
        events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message)))));
        let (calls, bodies): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
        events.extend(bodies.into_iter().map(|body| self.new_part(&id, Body::Tool(body))));
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        self.fresh.extend(calls);
        Ok(())
    }

    /// The model that a task of a prompt names.
    pub(super) fn model_of_task(&self, call_id: &str) -> Option<ModelRef> {
        let is_prompt = |entry: &&MessageWithParts| {
            context::as_user(entry).is_some() && context::origin(&entry.parts) == Origin::Prompt
        };
        let prompts = self.conversation.entries().iter().rev().filter(is_prompt);
        let mut parts = prompts.flat_map(|entry| &entry.parts).map(|(_, part)| part);
        parts.find(|part| part.id.as_str() == call_id).and_then(|part| match &part.body {
            Body::Subtask(Subtask { model, .. }) => model.clone(),
            _ => None,
        })
    }

    /// Whether the newest step runs what a person asked for in the shell.
    pub(super) fn is_of_a_person(&self) -> bool {
        let entries = self.conversation.entries();
        let asked =
            self.conversation.last_step().and_then(|(step, _)| context::place(entries, &step.parent_id));
        asked.is_some_and(|at| context::asked_shell(&entries[at].parts).is_some())
    }

    /// Whether a person may not run this in the shell: what would be asked for is allowed by who runs it.
    pub(super) fn is_denied_to_a_person(&self, input: &Value) -> bool {
        let agent = self.conversation.last_step().map_or("", |(step, _)| step.agent.as_str());
        self.rights.verdict(agent, Tool::Bash, input) == Verdict::Deny
    }
}
