//! What names a door.

use domain::ids::{SessionId, TenantId};

/// The session that a door belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DoorKey {
    /// The tenant of the session.
    pub tenant: TenantId,
    /// The session that owns the workspace.
    pub session: SessionId,
}
