//! Summaries that replace everything before them: whether one is needed, the request for it, the model call that writes it, and
//! how the turn continues. Each step of this is a separate write, so that a worker that dies between two of them leaves nothing to
//! repair.

use super::{calling::models::Models, guidance::TurnGuidance, session::Session};
use crate::{
    conversation::{
        entries, prune,
        summary::{self, Plan},
    },
    lower::request,
    model::gate::CallPlan,
    process::clock::now,
    record::WriteError,
};
use domain::{
    conversation::{
        context::Window,
        message::{Message, User},
        part::{Body, Part, Span, Text, attached},
    },
    event::Event,
    ids::MessageId,
    policy::agent::COMPACTION,
    turn::{
        signal::Signal,
        view::{Due, LastStep, View},
    },
};
use llm::model::Model;
use settings::{Compaction, Settings};
use store::{log::record::Progress, rows::ledger::Purpose};

/// The text with which the agent continues after a summary.
const CONTINUE_TEXT: &str =
    "Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed.";

/// The inputs of the decision whether a summary is needed.
#[derive(Debug, Clone, Copy)]
struct RoomFacts {
    /// Whether the newest answer filled the context of the model that answers next, or the conversation is too large for memory.
    is_full: bool,
    /// Whether settings allow summaries that no person requests.
    is_automatic: bool,
    /// Whether the loop knows the settings of the repository, or does not need them.
    is_prepared: bool,
}

impl RoomFacts {
    fn apply(self, view: View) -> View {
        let due = if self.is_prepared { view.due } else { Due::Preparation };
        let last =
            view.last.map(|last| LastStep { overflowed: last.overflowed && self.is_automatic, ..last });
        View { due, is_full: self.is_full && self.is_automatic, last, ..view }
    }
}

/// A model call for a summary, ready to be sent.
pub(super) struct SummaryCall {
    pub(super) plan: CallPlan,
    /// The message that requests the summary.
    pub(super) user: User,
    /// Stores which message is the first kept one, if that is new.
    pub(super) tail: Option<Event>,
}

/// Adds to a view how much room is left for another answer of the model that will give it. The settings of the repository decide
/// which model that is and whether there are summaries, so they are read first if the conversation already has an answer.
pub(super) fn with_context_room(
    view: View,
    session: &Session,
    guidance: &TurnGuidance,
    models: Models<'_>,
) -> View {
    let (used, is_heavy) = (session.conversation().used(), session.conversation().is_heavy());
    let overflowed = view.last.as_ref().is_some_and(|last| last.overflowed);
    let user = session.newest_user().and_then(|user| models.choose(user));
    let model = user.and_then(|user| models.find(&user.model.model));
    let facts = RoomFacts {
        is_full: is_heavy
            || model
                .zip(used)
                .is_some_and(|((_, model), used)| window(models.settings, &model).is_filled_by(&used)),
        is_automatic: models.settings.compaction.auto != Some(false),
        is_prepared: used.is_none() && !overflowed && !is_heavy || guidance.is_guided(session),
    };
    facts.apply(view)
}

/// The context window of a model, as the settings divide it.
fn window(settings: &Settings, model: &Model) -> Window {
    let Compaction { reserved, preserve_recent_tokens, tail_turns, .. } = settings.compaction;
    Window {
        reserved_tokens: reserved,
        tail_tokens: preserve_recent_tokens,
        tail_turns,
        ..request::window(model)
    }
}

/// Writes the request for a summary.
pub(super) async fn request_summary(session: &mut Session, overflow: bool) -> Result<(), WriteError> {
    let Some(user) = session.newest_user() else { return Ok(()) };
    let user = User { system: None, tools: None, format: None, ..session.copy_of(user) };
    let compaction = attached::Compaction { auto: true, overflow: Some(overflow), tail_start_id: None };
    metrics::counter!("flotilla_compactions_total").increment(1);
    write_user(session, user, vec![Body::Compaction(compaction)]).await
}

/// Prepares the model call for the requested summary. `None` if none was requested.
pub(super) fn summary_call(session: &Session, models: Models<'_>) -> Result<Option<SummaryCall>, Signal> {
    let conversation = session.conversation();
    let Some(mut user) = entries::summary_request(conversation.entries()).cloned() else { return Ok(None) };
    let (_, model) = models.get(&user.model.model)?;
    // The tail is sized for the model that continues, whichever model writes the summary.
    let own_window = window(models.settings, &model);
    let plan = conversation.work(|entries| Plan::new(entries, &user.id, &own_window));
    let agent = models.permissions.agent(COMPACTION);
    let of_agent = agent.and_then(|agent| agent.model.as_ref());
    if let Some(model) = of_agent.filter(|model| models.find(model).is_some()) {
        user.model.model = model.clone();
    }
    let (provider, model) = models.get(&user.model.model)?;
    let own_window = window(models.settings, &model);
    let request = conversation.work(|_| plan.request(&user, &own_window));
    let mut request = llm::request::Request { variant: request::effort(&user), ..request };
    if let Some(agent) = agent {
        request::configure(&mut request, agent);
    }
    let tail = tail_event(session, &user, plan.tail_start_id);
    let plan = CallPlan {
        provider,
        model,
        request,
        session: session.record.session().clone(),
        purpose: Purpose::Summary,
    };
    Ok(Some(SummaryCall { plan, user, tail }))
}

/// The request for the summary with the first kept message, if that is new.
fn tail_event(session: &Session, user: &User, tail_start_id: Option<MessageId>) -> Option<Event> {
    let entries = session.conversation().entries();
    let parts = entries::position(entries, &user.id).map(|at| &entries[at].parts)?;
    let mut requests = parts.iter().filter_map(|(_, part)| Some((part, part.body.as_compaction()?)));
    let (part, compaction) = requests.next()?;
    if compaction.tail_start_id == tail_start_id {
        return None;
    }
    let body = Body::Compaction(attached::Compaction { tail_start_id, ..compaction.clone() });
    Some(Event::PartUpdated { part: Box::new(Part { body, ..part.clone() }), at: now() })
}

/// Lets the turn continue after a summary: with the prompt that a model refused as too long, or with a synthetic text.
pub(super) async fn resume(session: &mut Session) -> Result<(), WriteError> {
    let entries = session.conversation().entries();
    let Some((summary, _)) = session.conversation().last_step() else { return Ok(()) };
    let Some(request) = entries::position(entries, &summary.parent_id) else { return Ok(()) };
    let repeated = entries::repeated_prompt(entries, request).map(|at| &entries[at]);
    let settings = repeated.or_else(|| session.conversation().newest_prompt()).unwrap_or(&entries[request]);
    let Some(user) = entries::as_user(settings) else { return Ok(()) };
    let parts = repeated.map(|entry| summary::repeated_parts(&entry.parts));
    let bodies = parts.filter(|bodies| !bodies.is_empty()).unwrap_or_else(|| {
        let time = Some(Span { start: now(), end: Some(now()) });
        let text = Text { time, ..Text::synthetic(CONTINUE_TEXT) };
        vec![Body::Text(text.marked(entries::CONTINUE, true))]
    });
    let user = session.copy_of(user);
    write_user(session, user, bodies).await
}

async fn write_user(session: &mut Session, user: User, bodies: Vec<Body>) -> Result<(), WriteError> {
    let id = user.id.clone();
    let mut events = vec![Event::MessageUpdated(Box::new(Message::User(user)))];
    events.extend(bodies.into_iter().map(|body| session.new_part(&id, body)));
    session.write_announced(events, Progress::None).await
}

/// Prunes old outputs of tools at the end of a turn.
pub(super) fn prune(session: &Session, settings: &Settings) -> Vec<Event> {
    if settings.compaction.prune == Some(false) {
        return vec![];
    }
    let parts = session.conversation().work(|entries| prune::pruned(entries, now()));
    parts.into_iter().map(|part| Event::PartUpdated { part: Box::new(part), at: now() }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn settings_of_the_repository_decide_about_automatic_summaries() {
        let facts = RoomFacts { is_full: true, is_automatic: true, is_prepared: true };
        for (what, facts, want) in [
            ("a full context", facts, (Due::Nothing, true)),
            ("room", RoomFacts { is_full: false, ..facts }, (Due::Nothing, false)),
            ("switched off", RoomFacts { is_automatic: false, ..facts }, (Due::Nothing, false)),
            (
                "before the settings are read",
                RoomFacts { is_prepared: false, ..facts },
                (Due::Preparation, true),
            ),
        ] {
            let view = facts.apply(View::default());
            assert_eq!((view.due, view.is_full), want, "{what}");
        }
    }
}
