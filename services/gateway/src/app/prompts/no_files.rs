//! The note that a session without files begins with. It comes with the first prompt and not with the session: `opencode run` prints only what
//! happens after it has created its session. Its stream begins together with its prompt, so a stream of a directory begins with such notes.

use super::{accept, request::PromptRequest};
use crate::{
    app::{gateway::Gateway, projects::manage, sessions::read},
    auth::principal::Principal,
    errors::error::Error,
};
use domain::{
    conversation::part::{Body, Span, Text},
    ids::SessionId,
};
use store::log::messages::MessageWithParts;

/// The idempotency key of the note: a session gets it once.
const KEY: &str = "flotilla:no-files";

const MARK: &str = "no_files";

/// Whether a message is the note.
pub(crate) fn is_note(entry: &MessageWithParts) -> bool {
    let mut texts = entry.parts.iter().filter_map(|(_, part)| part.body.as_text());
    texts.any(|text| text.mark(MARK).is_some())
}

/// Tells the people of a session that it has no files, if that is so and the session has had no turn yet. No model reads it.
///
/// # Errors
/// `session_not_found`, `store_unavailable`; those of [`accept::accept`].
pub(crate) async fn tell(gateway: &Gateway, principal: &Principal, session: &SessionId) -> Result<(), Error> {
    let stored = read::get(gateway, principal, session).await?;
    let note = manage::files_note(&stored.directory, &stored.source);
    let Some(note) = note.filter(|_| stored.last_outcome.is_none()) else { return Ok(()) };
    // `opencode run` prints a text that has ended. A repeated note must be the same one.
    let created = stored.info.time.created;
    let text = Text {
        time: Some(Span { start: created, end: Some(created) }),
        ..Text::note(note).marked(MARK, true)
    };
    let request = PromptRequest {
        parts: vec![Body::Text(text).into()],
        no_reply: true,
        idempotency_key: KEY.to_owned(),
        ..PromptRequest::default()
    };
    accept::accept(gateway, principal, session, request).await.map(drop)
}
