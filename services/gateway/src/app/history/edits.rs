//! Edits of people in an idle conversation.

use crate::{
    app::gateway::Gateway,
    auth::principal::Principal,
    errors::{entity::Entity, error::Error, invalid::Invalid},
    scope::Scope,
    state::now,
};
use domain::{
    conversation::part::Part,
    ids::{EventId, MessageId, PartId, SessionId},
    limits,
};
use store::log::edits::Edit;

/// Performs an edit and publishes its events.
///
/// # Errors
/// `session_not_found`, `message_not_found`, `not_found`, `session_busy`, `store_unavailable`.
pub(crate) async fn edit(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    edit: &Edit,
) -> Result<(), Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    let event = state.id(EventId::make);
    let events = state.store.edit(tenant, session, edit, &event, now()).await?;
    state.publisher.publish_events(tenant, session, &events);
    Ok(())
}

/// The id of a part with that of its message.
#[derive(Debug, Clone)]
pub(crate) struct PartPath {
    pub(crate) message: MessageId,
    pub(crate) part: PartId,
}

/// Replaces the text of a text part and returns the part.
///
/// # Errors
/// `text_too_long`; those of [`edit`].
pub(crate) async fn replace_text(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    path: PartPath,
    text: &str,
) -> Result<Part, Error> {
    let limit = limits::PROMPT_BYTES_MAX;
    if text.len() > limit {
        let message = format!("the text is {} bytes, the limit is {limit} bytes", text.len());
        return Err(Invalid::TextTooLong.because(message));
    }
    let PartPath { message, part } = path;
    let text = domain::text::without_nul(text).into_owned();
    edit(gateway, principal, session, &Edit::Text(message.clone(), part.clone(), text)).await?;
    let tenant = principal.tenant(Scope::Read)?;
    let entry = gateway.state.store.get_message(tenant, session, &message).await?;
    let mut parts = entry.parts.into_iter().map(|(_, part)| part);
    parts.find(|other| other.id == part).ok_or(Error::NotFound(Entity::StoredPart))
}
