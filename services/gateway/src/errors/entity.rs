//! The kinds of objects that a call can name and that may not exist.

use rpc::v1::ErrorCode;
use std::fmt;

/// A kind of object, with a stable code and a sentence for the case that it does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entity {
    Session,
    Project,
    Secret,
    Provider,
    Message,
    /// A part of a message that a revert names.
    Part,
    Bundle,
    Tenant,
    Key,
    Approval,
    Permission,
    Question,
    Terminal,
    Worker,
    /// A part of a message that a client edits.
    StoredPart,
    /// An environment that a repository proposes.
    ProposedEnvironment,
    /// Something that a forge told us, and that was processed.
    Delivery,
    /// Any other object; the caller's use case has a better name for most.
    Other(&'static str),
}

impl Entity {
    /// The stable code for an object that does not exist.
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::Session => ErrorCode::SessionNotFound,
            Self::Project => ErrorCode::ProjectNotFound,
            Self::Secret => ErrorCode::SecretNotFound,
            Self::Provider => ErrorCode::ProviderNotFound,
            Self::Message => ErrorCode::MessageNotFound,
            Self::Part => ErrorCode::PartNotFound,
            Self::Bundle => ErrorCode::BundleNotFound,
            Self::Tenant => ErrorCode::TenantNotFound,
            Self::Key => ErrorCode::KeyNotFound,
            Self::Approval => ErrorCode::ApprovalNotFound,
            Self::Permission => ErrorCode::PermissionNotFound,
            Self::Question => ErrorCode::QuestionNotFound,
            Self::Terminal => ErrorCode::PtyNotFound,
            Self::Worker => ErrorCode::WorkerNotFound,
            Self::ProposedEnvironment => ErrorCode::EnvironmentNotProposed,
            Self::Delivery => ErrorCode::DeliveryNotFound,
            Self::StoredPart | Self::Other(_) => ErrorCode::NotFound,
        }
    }
}

impl From<store::error::Entity> for Entity {
    fn from(entity: store::error::Entity) -> Self {
        use store::error::Entity as Stored;
        match entity {
            Stored::Session => Self::Session,
            Stored::Project => Self::Project,
            Stored::Secret => Self::Secret,
            Stored::Message => Self::Message,
            Stored::Bundle => Self::Bundle,
            Stored::Tenant => Self::Tenant,
            Stored::Part => Self::StoredPart,
            Stored::ProposedEnvironment => Self::ProposedEnvironment,
            Stored::Key | Stored::Request => Self::Other(entity.as_str()),
        }
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "there is no session with this id for this key",
            Self::Project => "there is no project with this id for this key",
            Self::ProposedEnvironment => "no repository of the project has proposed this environment",
            Self::Delivery => "there is no delivery with this id that was processed",
            Self::Secret => "there is no secret with this name",
            Self::Provider => "no worker reports this provider; GET /api/provider lists the providers",
            Self::Message => "the session has no message with this id",
            Self::Part | Self::StoredPart => "the message has no part with this id",
            Self::Bundle => "there is no bundle with this id; upload it first",
            Self::Tenant => "there is no tenant with this id for this key",
            Self::Key => "there is no API key with this id",
            Self::Approval => "no \"always\" answer to this request is in force",
            Self::Permission => "there is no permission request with this id for this key",
            Self::Question => "there is no question with this id for this key",
            Self::Terminal => "there is no terminal with this id for this key, or its program has ended",
            Self::Worker => "no running worker has this name",
            Self::Other(word) => return write!(f, "there is no {word} with this id"),
        })
    }
}
