//! What one step's model request is made from, besides the conversation.

use crate::{
    calls::permissions::Permissions, conversation::structured::Structured, repository::guidance::Guidance,
};
use domain::message::User;

/// What one step's model request is made from, besides the conversation.
pub(crate) struct StepContext<'a> {
    /// The prompt that the step answers, with the turn's settings.
    pub(crate) user: &'a User,
    pub(crate) permissions: &'a Permissions,
    /// What the answer must be, unless it is text.
    pub(crate) structured: Option<&'a Structured>,
    /// Whether the turn may have no further step.
    pub(crate) is_last: bool,
    pub(crate) guidance: &'a Guidance,
}
