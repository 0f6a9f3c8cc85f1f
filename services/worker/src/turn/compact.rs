//! Around a summary: the wish for it, the call that writes it, and what follows. Each is a write of its own; a worker that
//! dies between two leaves the next one where it was.

use super::Loop;
use crate::{
    clock::now,
    context::{self, prune, summary},
    lower,
    model::{Asked, ModelCall},
    record::Stopped,
    rights::Rights,
};
use domain::{
    agent::COMPACTION,
    context::Window,
    event::Event,
    ids::MessageId,
    message::{Message, MessageTime, User},
    part::{Body, Part, Span, Text, attached},
    turn::{Due, Input, LastStep, View},
};
use settings::Compaction;
use store::log::record::Progress;

/// What lets the agent go on after a summary.
const GO_ON: &str =
    "Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed.";

impl Loop {
    /// What a turn decides by, with the room that is left for another answer of the model that is to give it. Who that is and
    /// whether there shall be a summary is for the repository to say: where something was said before, it is read first.
    pub(super) fn with_room(&self, view: View) -> View {
        let used = self.conversation.used();
        let overflowed = view.last.as_ref().is_some_and(|last| last.overflowed);
        let is_prepared = used.is_none() && !overflowed || self.is_guided();
        let due = if is_prepared { view.due } else { Due::Preparation };
        let user = self.conversation.newest_user(&self.inputs).and_then(|user| self.answering(user));
        let found = user.and_then(|user| self.model_of(&user.model.model));
        let is_full =
            found.zip(used).is_some_and(|((_, model), used)| self.window(&model).is_filled_by(&used));
        let is_wanted = self.settings().compaction.auto != Some(false);
        let last = view.last.map(|last| LastStep { overflowed: last.overflowed && is_wanted, ..last });
        View { due, is_full: is_full && is_wanted, last, ..view }
    }

    /// What a model takes, as settings divide it.
    fn window(&self, model: &llm::model::Model) -> Window {
        let Compaction { reserved, preserve_recent_tokens, tail_turns, .. } = self.settings().compaction;
        Window {
            reserved_tokens: reserved,
            tail_tokens: preserve_recent_tokens,
            tail_turns,
            ..lower::window(model)
        }
    }

    /// Writes the wish for a summary.
    pub(super) async fn compact(&mut self, overflow: bool) -> Result<(), Stopped> {
        let Some(user) = self.conversation.newest_user(&self.inputs) else { return Ok(()) };
        let asked = User { system: None, tools: None, format: None, ..self.copy_of(user) };
        let wish = attached::Compaction { auto: true, overflow: Some(overflow), tail_start_id: None };
        metrics::counter!("flotilla_compactions_total").increment(1);
        self.write_user(asked, vec![Body::Compaction(wish)]).await
    }

    /// Calls the model for the summary that was asked for.
    pub(super) async fn summarize(&mut self, failed: u32) -> Result<Option<Input>, Stopped> {
        self.lease_runs().await;
        let entries = self.conversation.entries();
        let Some(mut user) = context::asked_summary(entries).cloned() else { return Ok(None) };
        let (_, model) = match self.found(&user.model.model) {
            Ok(found) => found,
            Err(failed) => return Ok(Some(failed)),
        };
        // What is kept is for the model that goes on, whoever sums up the rest.
        let window = self.window(&model);
        let plan = self.conversation.work(|entries| summary::Plan::new(entries, &user.id, &window));
        let agent = self.rights.agent(COMPACTION);
        let of_agent = agent.and_then(|agent| agent.model.as_ref());
        if let Some(model) = of_agent.filter(|model| self.found(model).is_ok()) {
            user.model.model = model.clone();
        }
        let (provider, model) = match self.found(&user.model.model) {
            Ok(found) => found,
            Err(failed) => return Ok(Some(failed)),
        };
        let window = self.window(&model);
        let request = self.conversation.work(|_| plan.request(&user, &window));
        let mut request = llm::request::Request { variant: lower::effort(&user), ..request };
        if let Some(agent) = agent {
            lower::configure(&mut request, agent);
        }
        let wish = self.wish_with_tail(&user, plan.tail_start_id);
        let message = self.begin_step(&user, failed, wish).await?;
        let asked = Asked { rights: Rights::default(), structured: None, offered: vec![] };
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
        let body = Body::Compaction(attached::Compaction { tail_start_id, ..wish.clone() });
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
    pub(super) fn copy_of(&self, user: &User) -> User {
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
        if self.settings().compaction.prune == Some(false) {
            return vec![];
        }
        let parts = self.conversation.work(|entries| prune::pruned(entries, now()));
        parts.into_iter().map(|part| Event::PartUpdated { part: Box::new(part), at: now() }).collect()
    }
}
