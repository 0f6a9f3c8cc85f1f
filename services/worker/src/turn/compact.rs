//! Around a summary: the wish for it, the call that writes it, and what follows. Each is a write of its own; a worker that
//! dies between two leaves the next one where it was.

use super::Loop;
use crate::{
    clock::now,
    context::{self, Origin, prune, summary},
    lower,
    model::{Asked, ModelCall},
    record::Stopped,
    rights::Rights,
};
use domain::{
    event::Event,
    ids::{MessageId, PartId},
    message::{Message, MessageTime, User},
    part::{Body, Part, Span, Text, attached::Compaction},
    turn::Input,
};
use store::record::Progress;

/// What lets the agent go on after a summary.
const GO_ON: &str =
    "Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed.";

impl Loop {
    /// Writes the wish for a summary.
    pub(super) async fn compact(&mut self, overflow: bool) -> Result<(), Stopped> {
        let Some(user) = self.conversation.newest_user(&self.inputs) else { return Ok(()) };
        let asked = User { system: None, tools: None, format: None, ..self.copy_of(user) };
        let wish = Compaction { auto: true, overflow: Some(overflow), tail_start_id: None };
        metrics::counter!("flotilla_compactions_total").increment(1);
        self.write_user(asked, vec![Body::Compaction(wish)]).await
    }

    /// Calls the model for the summary that was asked for.
    pub(super) async fn summarize(&mut self, failed: u32) -> Result<Option<Input>, Stopped> {
        self.lease_runs().await;
        let entries = self.conversation.entries();
        let Some(user) = context::asked_summary(entries).cloned() else { return Ok(None) };
        let (provider, model) = match self.found(&user.model.model) {
            Ok(found) => found,
            Err(failed) => return Ok(Some(failed)),
        };
        let window = lower::window(&model);
        let plan = summary::Plan::new(entries, &user.id, &window);
        let request = llm::request::Request { variant: lower::effort(&user), ..plan.request(&user, &window) };
        let wish = self.wish_with_tail(&user, plan.tail_start_id);
        let message = self.begin_step(&user, failed, wish).await?;
        let asked = Asked { rights: Rights::default(), structured: None };
        self.model = Some(ModelCall::start(&self.deps, provider, model, request, (message, asked)));
        Ok(None)
    }

    /// The wish with the first message that is kept, if that is news.
    fn wish_with_tail(&self, user: &User, tail_start_id: Option<MessageId>) -> Option<Event> {
        let entries = self.conversation.entries();
        let (_, part) = context::place(entries, &user.id).and_then(|at| {
            entries[at].parts.iter().find(|(_, part)| matches!(part.body, Body::Compaction(_)))
        })?;
        let Body::Compaction(wish) = &part.body else { return None };
        if wish.tail_start_id == tail_start_id {
            return None;
        }
        let body = Body::Compaction(Compaction { tail_start_id, ..wish.clone() });
        Some(Event::PartUpdated { part: Box::new(Part { body, ..part.clone() }), at: now() })
    }

    /// Lets the turn go on after a summary: by the prompt that a model refused as too long, or by words of ours.
    pub(super) async fn resume(&mut self) -> Result<(), Stopped> {
        let entries = self.conversation.entries();
        let Some((summary, _)) = self.conversation.last_step() else { return Ok(()) };
        let Some(asked) = context::place(entries, &summary.parent_id) else { return Ok(()) };
        let replayed = context::replayed(entries, asked).map(|at| &entries[at]);
        let settings = replayed.or_else(|| self.conversation.newest_prompt()).unwrap_or(&entries[asked]);
        let Some(user) = context::as_user(settings) else { return Ok(()) };
        let again = replayed.map(|entry| summary::replay(&entry.parts)).filter(|bodies| !bodies.is_empty());
        let bodies = match again {
            Some(bodies) => bodies,
            None => {
                let time = Some(Span { start: now(), end: Some(now()) });
                let text = Text { time, ..Text::synthetic(GO_ON) };
                vec![Body::Text(text.marked(context::CONTINUE, true))]
            }
        };
        let user = self.copy_of(user);
        self.write_user(user, bodies).await
    }

    /// The same settings under a new id.
    fn copy_of(&self, user: &User) -> User {
        User {
            id: self.deps.id(MessageId::make),
            time: MessageTime { created: now(), completed: None },
            summary: None,
            ..user.clone()
        }
    }

    async fn write_user(&mut self, user: User, bodies: Vec<Body>) -> Result<(), Stopped> {
        let mut events: Vec<Event> = self.take_over.take().into_iter().collect();
        let id = user.id.clone();
        events.push(Event::MessageUpdated(Box::new(Message::User(user))));
        events.extend(bodies.into_iter().map(|body| self.new_part(&id, body)));
        self.record.write(&mut self.conversation, events, Progress::None).await
    }

    /// Leaves out old outputs of tools, now that the turn is over.
    pub(super) fn prune(&self) -> Vec<Event> {
        let parts = prune::pruned(self.conversation.entries(), now());
        parts.into_iter().map(|part| Event::PartUpdated { part: Box::new(part), at: now() }).collect()
    }

    /// The parts of a prompt's tasks for subagents become calls of a step: begun, and stored as such.
    pub(super) async fn delegate(&mut self) -> Result<(), Stopped> {
        let Some(user) = self.conversation.newest_user(&self.inputs).cloned() else { return Ok(()) };
        let tasks: Vec<(PartId, domain::part::attached::Subtask)> =
            context::subtasks(self.conversation.entries())
                .filter_map(|part| match &part.body {
                    Body::Subtask(task) => Some((part.id.clone(), task.clone())),
                    _ => None,
                })
                .collect();
        let Some((_, first)) = tasks.first() else { return Ok(()) };
        let mut message = super::step::assistant(self.deps.id(MessageId::make), &user);
        (message.mode, message.agent) = (first.agent.clone(), first.agent.clone());
        message.finish = Some("tool-calls".to_owned());
        let id = message.id.clone();
        let mut events: Vec<Event> = self.take_over.take().into_iter().collect();
        events.push(Event::SessionStatus(domain::event::Status::Busy));
        events.push(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message)))));
        let mut calls = vec![];
        for (part_id, task) in tasks {
            calls.push(part_id.to_string());
            let body = Body::Tool(crate::tools::task::call(&part_id, &task, now()));
            events.push(self.new_part(&id, body));
        }
        self.record.write(&mut self.conversation, events, Progress::None).await?;
        self.fresh.extend(calls);
        Ok(())
    }

    /// The model that a task of a prompt names.
    pub(super) fn model_of_task(&self, call_id: &str) -> Option<domain::message::ModelRef> {
        let entries = self.conversation.entries().iter().rev();
        let parts = entries.filter(|entry| origin_is_person(entry)).flat_map(|entry| &entry.parts);
        parts.map(|(_, part)| part).find(|part| part.id.as_str() == call_id).and_then(|part| {
            match &part.body {
                Body::Subtask(task) => task.model.clone(),
                _ => None,
            }
        })
    }
}

fn origin_is_person(entry: &store::messages::Entry) -> bool {
    context::as_user(entry).is_some() && context::origin(&entry.parts) == Origin::Prompt
}
