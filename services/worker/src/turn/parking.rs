//! The end of a turn, or of a loop's part of it: what parking a session stores, and what follows.

use super::{session::Session, waits::children};
use crate::{conversation::entries, process::clock::now};
use domain::{
    conversation::{
        command::{CommandRequest as Invocation, CommandState},
        part::{Body, Part},
    },
    event::{Event, Status},
    ids::SessionId,
    session::Outcome,
    turn::action::ParkReason,
    wait::{Reason, Wait},
};
use store::session::park::Park;

/// What to store when a session is parked.
pub(super) struct Parking {
    pub(super) park: Park,
    pub(super) events: Vec<Event>,
}

impl Parking {
    /// Decides what to store. `pruned` are the events that prune old outputs at the end of a turn.
    pub(super) fn new(session: &Session, reason: ParkReason, pruned: Vec<Event>) -> Self {
        let mut events: Vec<Event> = session.announcement().into_iter().collect();
        let park = match reason {
            ParkReason::Idle(outcome) => {
                events.extend(executed_commands(session));
                events.extend(pruned);
                events.extend([Event::SessionStatus(Status::Idle), Event::SessionIdle(outcome)]);
                let error = session.conversation().last_step().and_then(|(step, _)| step.error.as_ref());
                let error = error.filter(|_| outcome != Outcome::Done);
                let error = error.map(|error| error.data.message.clone());
                let answer = children::answer_to_parent(session, outcome, error.as_deref());
                Park::Idle { outcome, error, answer }
            }
            ParkReason::Wait(wait) => {
                events.push(Event::SessionWaiting(wait));
                Park::Waiting { wait, notify: parent_without_budget(session, wait) }
            }
        };
        Self { park, events }
    }
}

/// Performs the actions that follow once the session is parked.
pub(super) async fn after_park(session: &mut Session, reason: ParkReason) {
    match reason {
        ParkReason::Idle(outcome) => {
            after_turn(session, outcome).await;
            // A subtask rarely gets another prompt soon. A person may continue any other session at once.
            if session.profile.call.is_some() {
                session.release_sandbox();
            }
        }
        ParkReason::Wait(wait) => {
            metrics::counter!("flotilla_parks_total", "reason" => wait.reason.as_str()).increment(1);
            tracing::info!(reason = wait.reason.as_str(), "the loop is parked");
            session.release_sandbox();
            if let Some(parent) = parent_without_budget(session, wait) {
                session.deps.interrupt(session.record.tenant(), &parent, session.profile.class).await;
            }
        }
    }
}

async fn after_turn(session: &Session, outcome: Outcome) {
    session.close_hosts();
    metrics::counter!("flotilla_turns_total", "outcome" => outcome.as_str()).increment(1);
    tracing::info!(outcome = outcome.as_str(), "the turn ended");
    if let Some(call) = &session.profile.call {
        session.deps.interrupt(session.record.tenant(), &call.session, session.profile.class).await;
    }
}

/// The parent of a child that waits for the budget. From now on the parent waits for it too.
fn parent_without_budget(session: &Session, wait: Wait) -> Option<SessionId> {
    let call = session.profile.call.as_ref().filter(|_| waits_for_budget(wait))?;
    Some(call.session.clone())
}

fn waits_for_budget(wait: Wait) -> bool {
    match wait.reason {
        Reason::Budget => true,
        Reason::Permission
        | Reason::Question
        | Reason::Children
        | Reason::BackOff
        | Reason::FailedAttempt
        | Reason::NewerWorker => false,
    }
}

/// Announces that the commands of the turn were executed, once.
fn executed_commands(session: &Session) -> Vec<Event> {
    let Some((step, _)) = session.conversation().last_step() else { return vec![] };
    let commands = entries::expanded_commands(session.conversation().entries());
    commands
        .flat_map(|(part, text, invocation)| {
            let invocation = Invocation { progress: CommandState::Executed, ..invocation };
            let part = Part { body: Body::Text(invocation.mark(text.clone())), ..part.clone() };
            let executed = Event::CommandExecuted {
                name: invocation.name,
                arguments: invocation.arguments,
                message_id: step.id.clone(),
            };
            [Event::PartUpdated { part: Box::new(part), at: now() }, executed]
        })
        .collect()
}
