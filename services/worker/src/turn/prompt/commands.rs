//! The commands of prompts: the expanded text of a command is stored in the prompt once, so that every step and every worker
//! sends the same text.
// Continues in `expansion`, which asks the repository and the sandbox.

use super::expansion::{self, Expansion, ExpansionMeans};
use crate::{
    calls::run::SilentCalls,
    conversation::entries::{self, CommandPrompt},
    process::clock::now,
    record::WriteError,
    repository::guidance::Guidance,
    tools::outcome::ToolError,
    turn::session::Session,
};
use chassis::tasks;
use domain::{
    conversation::{
        command::{Command, CommandRequest as Invocation, CommandState},
        message::{Error, Message, User},
        part::{Body, Part, Text, attached::Subtask},
    },
    event::Event,
    limits,
    policy::agent::{Agent, Mode},
    text::without_nul,
    turn::{signal::Signal, work::Need},
};
use std::sync::Arc;
use store::log::record::Progress;
use tokio_util::task::AbortOnDropHandle;

/// The agent for the task of a command that names no agent.
const SUBAGENT: &str = "general";

/// Commands that are being expanded.
#[derive(Default)]
pub(in crate::turn) struct Commands {
    expanding: Option<AbortOnDropHandle<Result<Vec<Expansion>, ToolError>>>,
}

/// The changes to a prompt whose command was expanded.
#[derive(Debug, PartialEq)]
struct RewrittenPrompt {
    text: Text,
    /// The prompt's message, if its agent or model changes.
    user: Option<User>,
    /// Additional parts.
    bodies: Vec<Body>,
}

impl Commands {
    /// Whether prompts have commands that are not expanded.
    pub(in crate::turn) fn are_due(session: &Session) -> bool {
        entries::command_prompts(session.conversation().entries()).next().is_some()
    }

    /// Starts to expand the commands of prompts. False if there are none.
    pub(in crate::turn) fn expand(
        &mut self,
        session: &Session,
        guidance: &Arc<Guidance>,
        silent_calls: SilentCalls,
    ) -> bool {
        let prompts: Vec<CommandPrompt> =
            entries::command_prompts(session.conversation().entries()).collect();
        let Some(first) = prompts.first() else { return false };
        let means = ExpansionMeans {
            deps: Arc::clone(&session.deps),
            identity: session.identity.clone(),
            workspace: session.workspace.clone(),
            guidance: Arc::clone(guidance),
            permissions: session.permissions.of_prompt(first.user.tools.as_ref()),
            silent_calls,
        };
        self.expanding = Some(tasks::spawn_owned("commands", expansion::expand_all(means, prompts)));
        true
    }

    /// Waits until the commands are expanded, if they are being expanded. Cancel-safe.
    pub(in crate::turn) async fn next(&mut self) -> Result<Vec<Expansion>, ToolError> {
        let Some(task) = &mut self.expanding else { return std::future::pending().await };
        let expanded = task.await;
        self.expanding = None;
        expanded.unwrap_or_else(|error| Err(ToolError::Broken(Error::new("UnknownError", error.to_string()))))
    }

    /// Ends the expansion: the step is being stopped.
    pub(in crate::turn) fn stop(&mut self) {
        self.expanding = None;
    }
}

/// Stores the expanded commands.
pub(in crate::turn) async fn store_expansions(
    session: &mut Session,
    expansions: Result<Vec<Expansion>, ToolError>,
) -> Result<Signal, WriteError> {
    let expansions = match expansions {
        Ok(expansions) => expansions,
        Err(error) => return broken_signal(error),
    };
    let events = expansions.into_iter().flat_map(|expansion| prompt_events(session, expansion)).collect();
    session.write(events, Progress::None).await?;
    Ok(Signal::Ready(Need::Commands))
}

/// The signal for a turn whose prompt cannot be prepared.
pub(super) fn broken_signal(error: ToolError) -> Result<Signal, WriteError> {
    match error {
        ToolError::Fenced => Err(WriteError::Fenced),
        ToolError::Broken(error) => Ok(Signal::Broken(error)),
        ToolError::Model(text) => Ok(Signal::Broken(Error::new("UnknownError", text))),
    }
}

/// The ids under which the sandbox knows the shell commands of an expansion, whatever the command contains.
pub(in crate::turn) fn exec_ids(part: &Part) -> impl Iterator<Item = String> {
    (0..limits::COMMAND_SHELLS_MAX).map(move |number| expansion::exec_id(part, number))
}

fn prompt_events(session: &Session, expansion: Expansion) -> Vec<Event> {
    let part = expansion.prompt.part.clone();
    let agent = expansion.command.agent.as_ref().unwrap_or(&expansion.prompt.user.agent);
    let is_subagent = session.permissions.agent(agent).and_then(|agent| agent.mode) == Some(Mode::Subagent)
        || Agent::parse(agent).is_some_and(|agent| Agent::SUBAGENTS.contains(&agent));
    let Some(rewritten) = rewrite(expansion, is_subagent) else { return vec![] };
    let user = rewritten.user.map(|user| Event::MessageUpdated(Box::new(Message::User(user))));
    let mut events: Vec<Event> = user.into_iter().collect();
    let message = part.message_id.clone();
    let part = Part { body: Body::Text(rewritten.text), ..part };
    events.push(Event::PartUpdated { part: Box::new(part), at: now() });
    events.extend(rewritten.bodies.into_iter().map(|body| session.new_part(&message, body)));
    events
}

/// Puts an expanded command into its prompt: as a task for a subagent, or instead of the prompt's text.
fn rewrite(expansion: Expansion, is_subagent: bool) -> Option<RewrittenPrompt> {
    let Expansion { prompt: CommandPrompt { part, invocation, user }, command, text, mentions } = expansion;
    let before = part.body.as_text()?.clone();
    let text = without_nul(&text).into_owned();
    let invocation = Invocation { progress: CommandState::Expanded, ..invocation };
    let mut bodies = vec![];
    for body in mentions {
        let note = if let Body::Agent(agent) = &body { Some(Text::synthetic(agent.told())) } else { None };
        bodies.push(body);
        bodies.extend(note.map(Body::Text));
    }
    if command.subtask.unwrap_or(is_subagent) {
        let task = task_of(command, &invocation, text);
        bodies.insert(0, Body::Subtask(task));
        // People still see what the person wrote.
        let text = Text { ignored: Some(true), synthetic: Some(true), ..before };
        return Some(RewrittenPrompt { text: invocation.mark(text), user: None, bodies });
    }
    let mut changed = User { agent: command.agent.unwrap_or_else(|| user.agent.clone()), ..user.clone() };
    changed.model.model = command.model.unwrap_or(changed.model.model);
    changed.model.variant = command.variant.or(changed.model.variant);
    let text = invocation.mark(Text { text, ..before });
    Some(RewrittenPrompt { text, user: (changed != user).then_some(changed), bodies })
}

fn task_of(command: Command, invocation: &Invocation, prompt: String) -> Subtask {
    Subtask {
        prompt,
        description: command.description.unwrap_or_else(|| invocation.name.clone()),
        agent: command.agent.unwrap_or_else(|| SUBAGENT.to_owned()),
        model: command.model,
        command: Some(invocation.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::{
        conversation::message::{MessageTime, ModelRef},
        ids::Timestamp,
    };

    fn expansion(command: Command) -> Expansion {
        let invocation =
            Invocation { name: "fix".to_owned(), arguments: String::new(), progress: CommandState::Asked };
        let part = Part {
            id: "prt_1".parse().unwrap(),
            session_id: "ses_1".parse().unwrap(),
            message_id: "msg_1".parse().unwrap(),
            body: Body::Text(invocation.text()),
        };
        let user = User {
            id: "msg_1".parse().unwrap(),
            session_id: "ses_1".parse().unwrap(),
            time: MessageTime { created: Timestamp(1), completed: None },
            agent: "build".to_owned(),
            model: ModelRef { provider_id: "p".to_owned(), model_id: "m".to_owned() }.into(),
            system: None,
            tools: None,
            format: None,
            summary: None,
        };
        let prompt = CommandPrompt { part, invocation, user };
        Expansion { prompt, command, text: "Fix it".to_owned(), mentions: vec![] }
    }

    #[test]
    fn a_command_becomes_a_task_or_the_words_of_its_prompt() {
        let command = |subtask, agent: Option<&str>| Command {
            subtask,
            agent: agent.map(ToOwned::to_owned),
            ..Command::default()
        };
        for (command, is_subagent, is_task, agent) in [
            (command(None, None), false, false, None),
            (command(None, Some("plan")), false, false, Some("plan")),
            (command(None, Some("explore")), true, true, None),
            (command(Some(true), None), false, true, None),
            (command(Some(false), Some("explore")), true, false, Some("explore")),
        ] {
            let what = format!("{command:?}");
            let rewritten = rewrite(expansion(command), is_subagent).unwrap();
            let task = matches!(&rewritten.bodies[..], [Body::Subtask(task)] if task.prompt == "Fix it");
            assert_eq!((task, rewritten.text.text == "Fix it"), (is_task, !is_task), "{what}");
            assert_eq!(rewritten.user.map(|user| user.agent).as_deref(), agent, "{what}");
        }
    }
}
