//! The ids in paths and bodies. A malformed id counts as not found.

use crate::{
    errors::{entity::Entity, error::Error},
    http::refusal::{Refusal, RequestPart, Result, V2},
};
use domain::ids::{MessageId, PartId, ProjectId, SessionId};
use std::str::FromStr;

/// The session that a request names.
pub(in crate::http) fn session_id(text: &str) -> Result<SessionId> {
    id(text, Entity::Session)
}

/// The message that a request names.
pub(in crate::http) fn message_id(text: &str) -> Result<MessageId> {
    id(text, Entity::Message)
}

/// The part that a path names.
pub(in crate::http) fn part_id(text: &str) -> Result<PartId> {
    id(text, Entity::StoredPart)
}

/// The project that a path names.
pub(in crate::http) fn project_id(text: &str) -> Result<ProjectId> {
    id(text, Entity::Project)
}

/// The refusal of a parameter of a route that is not UTF-8: it names no object of its kind.
pub(in crate::http) fn not_utf8(route: &str, parameter: &str) -> Refusal {
    let below = route.strip_prefix(V2).unwrap_or_else(|| route.trim_start_matches('/'));
    let entity = match (parameter, below.split('/').next().unwrap_or_default()) {
        ("message", _) => Entity::Message,
        ("part", _) => Entity::StoredPart,
        ("permission", _) => Entity::Permission,
        ("request", _) if route.contains("/permission/") => Entity::Permission,
        ("request", _) => Entity::Question,
        (_, "session") => Entity::Session,
        (_, "project") => Entity::Project,
        (_, "provider") => Entity::Provider,
        (_, "permission") => Entity::Permission,
        (_, "question") => Entity::Question,
        (_, "pty") => Entity::Terminal,
        // To OpenCode, a path without such a file is a mistake in the query.
        _ => return RequestPart::Query.unreadable(format!("{parameter}: expected UTF-8, found other bytes")),
    };
    Error::NotFound(entity).into()
}

fn id<T: FromStr>(text: &str, entity: Entity) -> Result<T> {
    text.parse().map_err(|_| Error::NotFound(entity).into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_parameter_that_is_not_utf8_names_no_object_of_its_kind() {
        for (route, parameter, want) in [
            ("/session/{id}", "id", Entity::Session),
            ("/session/{id}/message/{message}", "message", Entity::Message),
            ("/session/{id}/message/{message}/part/{part}", "part", Entity::StoredPart),
            ("/session/{id}/permissions/{permission}", "permission", Entity::Permission),
            ("/permission/{id}/reply", "id", Entity::Permission),
            ("/question/{id}/reject", "id", Entity::Question),
            ("/project/{id}/directories", "id", Entity::Project),
            ("/pty/{id}/connect", "id", Entity::Terminal),
            ("/api/session/{id}/message", "id", Entity::Session),
            ("/api/session/{id}/permission/{request}", "request", Entity::Permission),
            ("/api/session/{id}/question/{request}/reply", "request", Entity::Question),
            ("/api/provider/{id}", "id", Entity::Provider),
        ] {
            let refusal = not_utf8(route, parameter);
            let is_wanted = matches!(refusal, Refusal::App(Error::NotFound(entity)) if entity == want);
            assert!(is_wanted, "{route} {parameter}: {refusal:?}");
        }
        let file = not_utf8("/api/fs/read/{*path}", "path");
        assert!(matches!(file, Refusal::Unreadable { part: RequestPart::Query, .. }), "{file:?}");
    }
}
