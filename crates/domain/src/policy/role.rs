//! What a tenant's API key may do.

/// The role of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything in the tenant, its keys, secrets and settings included.
    Admin,
    /// Sessions and projects, but neither keys nor secrets nor settings.
    Member,
    /// Reading only.
    Viewer,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Admin, Self::Member, Self::Viewer];

    /// The name of the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }

    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}
