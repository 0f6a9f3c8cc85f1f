//! The inputs of one step's model request, in addition to the conversation.

use crate::{
    calls::permissions::Permissions, conversation::structured::Structured, repository::guidance::Guidance,
};
use domain::conversation::message::User;

/// The inputs of one step's model request, in addition to the conversation.
pub(crate) struct StepContext<'a> {
    /// The prompt that the step answers, with the turn's settings.
    pub(crate) user: &'a User,
    pub(crate) permissions: &'a Permissions,
    /// The required format of the answer, unless it is text.
    pub(crate) structured: Option<&'a Structured>,
    /// Whether this is the last step of the turn.
    pub(crate) is_last: bool,
    pub(crate) guidance: &'a Guidance,
    /// Whether the session started from a repository.
    pub(crate) has_source: bool,
}
