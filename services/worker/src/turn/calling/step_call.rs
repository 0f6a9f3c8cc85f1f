//! The model call of a step, from the prompt to the request.

use super::models::Models;
use crate::{
    conversation::structured::Structured,
    lower::{request, step_context::StepContext},
    model::{call::Attempt, gate::CallPlan},
    repository::guidance::Guidance,
    turn::{intents::AnswerTerms, session::Session},
};
use domain::{
    conversation::message::{Assistant, User},
    limits,
    turn::{outcome::ANSWER_EMPTY, signal::Signal},
};
use llm::request::{Message, Request};
use store::rows::ledger::Purpose;

/// A step that has begun, with the prompt that it answers.
pub(in crate::turn) struct BegunStep {
    pub(in crate::turn) user: User,
    pub(in crate::turn) message: Assistant,
}

/// The model call of a step, ready to be sent.
pub(in crate::turn) struct StepCall {
    pub(in crate::turn) plan: CallPlan,
    pub(in crate::turn) message: Assistant,
    pub(in crate::turn) terms: AnswerTerms,
    pub(in crate::turn) attempt: Attempt,
    /// The prompt with the agent and the model that answer it.
    pub(in crate::turn) user: User,
}

/// Plans the model call of a step that has begun.
///
/// # Errors
/// The signal for a prompt that cannot be answered.
pub(in crate::turn) fn plan(
    session: &Session,
    models: Models<'_>,
    guidance: &Guidance,
    begun: BegunStep,
) -> Result<StepCall, Signal> {
    let Some(user) = models.choose(&begun.user) else {
        return Err(models.unknown_agent(&begun.user.agent));
    };
    let (provider, model) = models.get(&user.model.model)?;
    let conversation = session.conversation();
    let permissions = session.permissions.of_prompt(user.tools.as_ref());
    let structured = Structured::of(&user, conversation.misfits());
    let agent = session.permissions.agent(&user.agent);
    let steps_max = agent.and_then(|agent| agent.steps).unwrap_or(u32::MAX).min(limits::STEPS_PER_TURN_MAX);
    let context = StepContext {
        user: &user,
        permissions: &permissions,
        structured: structured.as_ref(),
        is_last: conversation.steps() >= steps_max,
        guidance,
        has_source: session.workspace.has_source(),
    };
    let mut request = conversation.work(|entries| request::request(entries, &context, &model));
    if let Some(agent) = agent {
        request::configure(&mut request, agent);
    }
    let offered = request.tools.iter().map(|tool| tool.name.clone()).collect();
    let message = Assistant {
        model: user.model.clone(),
        mode: user.agent.clone(),
        agent: user.agent.clone(),
        ..begun.message
    };
    let attempt = attempt(session, &request, structured.is_some());
    let session = session.record.session().clone();
    let plan = CallPlan { provider, model, request, session, purpose: Purpose::Step };
    let terms = AnswerTerms { permissions, structured, offered };
    Ok(StepCall { plan, message, terms, attempt, user })
}

/// What decides whether the attempt is repeated if it fails.
fn attempt(session: &Session, request: &Request, is_structured: bool) -> Attempt {
    let earlier = session.conversation().last_step().map(|(_, parts)| parts).unwrap_or_default();
    Attempt {
        has_media: request.has_media(),
        // A missing structured answer has an error of its own.
        may_be_empty: is_structured || matches!(request.messages.last(), Some(Message::ToolResults(_))),
        was_empty: earlier.iter().any(|(_, part)| part.body.is_failed_attempt(ANSWER_EMPTY)),
    }
}
