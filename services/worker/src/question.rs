//! What the model of a session would be asked next, without a loop: what a long conversation costs before its model is called
//! is measured with it.

use crate::{conversation::Conversation, guidance::Guidance, lower, rights::Rights};
use domain::ids::{SessionId, TenantId};
use llm::{model::Model, request::Request};
use store::{Store, error::Error};

/// Reads a session as its loop does and lowers it for `model`. Gives `None` when nobody has asked anything yet.
///
/// What the repository says and the rules of the session are left out: they do not grow with the conversation.
///
/// # Errors
/// `Unreadable` for what this version does not know; `Db`.
pub async fn find_question(
    store: &Store,
    tenant: TenantId,
    session: &SessionId,
    model: &Model,
) -> Result<Option<Request>, Error> {
    let mut conversation = Conversation::default();
    conversation.read(store, tenant, session).await?;
    let Some(user) = conversation.newest_user(&[]) else { return Ok(None) };
    let question = lower::Question {
        user,
        rights: &Rights::default(),
        structured: None,
        is_last: false,
        guidance: &Guidance::default(),
    };
    Ok(Some(lower::request(conversation.entries(), &question, model)))
}
