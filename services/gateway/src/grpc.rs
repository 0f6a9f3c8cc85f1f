//! The gRPC services, one file each. They parse and check what comes in, and call `intake` or the store.

pub(crate) mod admin;
mod budget;
pub(crate) mod event;
mod from_prompt;
pub(crate) mod message;
pub(crate) mod permission;
pub(crate) mod project;
pub(crate) mod prompt;
pub(crate) mod pty;
pub(crate) mod question;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod tenant;
pub(crate) mod to_wire;

use crate::{
    auth::Principal,
    state::{State, now},
};
use domain::{
    ids::{EventId, SessionId, TenantId},
    limits,
    request::{Answer, Id},
};
use rpc::{
    status::{error, invalid, not_found, precondition, unavailable},
    v1,
};
use store::{
    Page,
    error::{Entity, Error},
    people::requests::{AnswerOutcome, NewAnswer, RequestScope},
};
use tonic::{Code, Status};

/// The implementation of every service.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) State);

impl Service {
    /// The session that a list of requests to people is limited to, if one is named.
    ///
    /// # Errors
    /// `session_not_found`, `store_unavailable`.
    async fn filter(&self, tenant: TenantId, session: &str) -> Result<Option<SessionId>, Status> {
        if session.is_empty() {
            return Ok(None);
        }
        let session = session_id(session)?;
        self.0.store.get_head(tenant, &session).await.map_err(from_store)?;
        Ok(Some(session))
    }

    /// Takes a person's answer to a request, and wakes the session.
    ///
    /// # Errors
    /// NOT_FOUND under the caller's code; `already_resolved`; `store_unavailable`.
    async fn answer(
        &self,
        principal: &Principal,
        id: &Id,
        answer: Answer,
        unknown: (&'static str, &str),
    ) -> Result<(), Status> {
        let (tenant, event) = (principal.tenant, self.0.id(EventId::make));
        let by = NewAnswer { answer: &answer, by: &principal.name };
        let answered = self.0.store.answer_request(tenant, id, by, &event, now()).await;
        let answered = answered.map_err(|error| match error {
            Error::NotFound(_) => not_found(unknown.0, unknown.1),
            other => from_store(other),
        })?;
        match answered {
            AnswerOutcome::Accepted { session, class, events, .. } => {
                self.0.publisher.publish_events(tenant, &session, &events);
                self.0.interrupt(principal, &session, class).await;
                Ok(())
            }
            AnswerOutcome::AlreadyAnswered { by, at, .. } => {
                let ago = (now().0 - at.0).max(0) / 1_000;
                let message = format!("{} was already resolved by {by}, {ago} s ago", id.as_str());
                Err(precondition("already_resolved", message))
            }
        }
    }
}

/// Whose requests are listed: those of a session, with or without those below it, or all.
fn whose(session: Option<&SessionId>, with_subtasks: bool) -> RequestScope<'_> {
    match session {
        None => RequestScope::Tenant,
        Some(session) if with_subtasks => RequestScope::Tree(session),
        Some(session) => RequestScope::Session(session),
    }
}

/// Refuses an answer that is too long.
///
/// # Errors
/// `answer_too_long`.
fn check_answer(bytes: usize) -> Result<(), Status> {
    let most = limits::ANSWER_BYTES_MAX;
    if bytes > most {
        return Err(invalid(
            "answer_too_long",
            format!("the answer has {bytes} bytes; at most {most} are taken"),
        ));
    }
    Ok(())
}

/// What the store's errors mean to a caller. The cause stays in the log.
pub(crate) fn from_store(failure: Error) -> Status {
    match failure {
        Error::NotFound(entity) => match entity {
            Entity::Session => not_found("session_not_found", "there is no such session"),
            Entity::Project => not_found("project_not_found", "there is no such project"),
            Entity::Message => not_found("message_not_found", "there is no such message"),
            Entity::Bundle => not_found("bundle_not_found", "there is no such bundle; upload it first"),
            Entity::Tenant => not_found("tenant_not_found", "there is no such tenant"),
            Entity::Key | Entity::Part | Entity::Request => {
                not_found("not_found", format!("there is no such {}", entity.as_str()))
            }
        },
        Error::Conflict => error(Code::AlreadyExists, "idempotency_conflict", failure.to_string()),
        Error::TooManyInputs(_) => error(Code::ResourceExhausted, "session_full", failure.to_string()),
        Error::Quarantined => precondition("session_quarantined", failure.to_string()),
        Error::Busy => precondition("session_busy", failure.to_string()),
        Error::RevertUnfinished => precondition("revert_unfinished", failure.to_string()),
        Error::Fenced => precondition("epoch_stale", failure.to_string()),
        Error::Unreadable { .. } => {
            tracing::error!(error = &failure as &dyn std::error::Error, "a row of another version");
            error(Code::Internal, "row_unreadable", "a stored row was written by another version")
        }
        Error::Db(_) | Error::Migrate(_) if failure.is_transient() => {
            tracing::warn!(error = &failure as &dyn std::error::Error, "Postgres is not there");
            unavailable(
                "store_unavailable",
                "the database cannot be reached; try again, with the same idempotency key",
            )
        }
        Error::Db(_) | Error::Migrate(_) => {
            tracing::error!(error = &failure as &dyn std::error::Error, "a query failed");
            error(
                Code::Internal,
                "store_failed",
                "the database refused a query; the log of the gateway says why",
            )
        }
    }
}

/// A refusal of the sandbox keeps its code; its absence is one of ours.
pub(crate) fn from_sandbox(status: Status) -> Status {
    if rpc::status::code_of(&status).is_some() {
        return status;
    }
    tracing::warn!("the sandbox did not answer: {}", status.message());
    unavailable("sandbox_unavailable", "the sandbox service does not answer; try again later")
}

/// Parses an id of a request.
///
/// # Errors
/// NOT_FOUND with `code`: what is no id names nothing.
fn id<T: std::str::FromStr>(text: &str, code: &'static str, what: &str) -> Result<T, Status> {
    text.parse().map_err(|_| not_found(code, format!("there is no such {what}")))
}

fn session_id(text: &str) -> Result<domain::ids::SessionId, Status> {
    id(text, "session_not_found", "session")
}

/// Checks the page that a request asks for. `is_cursor` knows the cursors of this list: a forged one must not be taken
/// for the first page.
///
/// # Errors
/// `page_too_large`, `cursor_invalid`.
fn page(asked: Option<v1::Page>, is_cursor: impl FnOnce(&str) -> bool) -> Result<Page, Status> {
    let asked = asked.unwrap_or_default();
    if asked.limit > limits::PAGE_MAX {
        return Err(invalid("page_too_large", format!("a page has at most {} entries", limits::PAGE_MAX)));
    }
    if !asked.cursor.is_empty() && !is_cursor(&asked.cursor) {
        return Err(invalid("cursor_invalid", "the cursor was not given by this list"));
    }
    let limit = if asked.limit == 0 { limits::PAGE_DEFAULT } else { asked.limit };
    Ok(Page { limit, cursor: (!asked.cursor.is_empty()).then_some(asked.cursor) })
}

/// Whether `text` may be stored or looked up as text: Postgres has no NUL.
fn is_text(text: &str) -> bool {
    !text.contains('\0')
}

/// The cursor after a page: that of its last entry, unless the page was the last one.
fn next_cursor<T>(page: &Page, entries: &[T], cursor: impl FnOnce(&T) -> String) -> String {
    let is_full = entries.len() >= usize::try_from(page.limit).unwrap_or(usize::MAX);
    entries.last().filter(|_| is_full).map(cursor).unwrap_or_default()
}

/// Checks a name or title.
///
/// # Errors
/// `name_empty`, `name_too_long`.
fn name(text: &str) -> Result<String, Status> {
    if text.trim().is_empty() {
        return Err(invalid("name_empty", "the name is empty"));
    }
    if text.len() > limits::NAME_BYTES_MAX {
        return Err(invalid("name_too_long", format!("a name has at most {} bytes", limits::NAME_BYTES_MAX)));
    }
    Ok(domain::text::without_nul(text).into_owned())
}
