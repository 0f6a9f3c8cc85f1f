//! The ids in paths and bodies. A malformed id counts as not found.

use super::refusal::Result;
use crate::ground::{entity::Entity, error::Error};
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

fn id<T: FromStr>(text: &str, entity: Entity) -> Result<T> {
    text.parse().map_err(|_| Error::NotFound(entity).into())
}
