//! What a person may do in a repository, as its forge says.

use serde::{Deserialize, Serialize};

/// The role of a person in a repository, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// No access: everybody, for a private repository.
    None,
    Read,
    Triage,
    Write,
    Maintain,
    Admin,
}

impl Permission {
    pub const ALL: [Self; 6] =
        [Self::None, Self::Read, Self::Triage, Self::Write, Self::Maintain, Self::Admin];

    /// The word of forges. It is also what refusals say.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Triage => "triage",
            Self::Write => "write",
            Self::Maintain => "maintain",
            Self::Admin => "admin",
        }
    }

    /// Reads [`Permission::as_str`]. A word that is not known allows nothing.
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|permission| permission.as_str() == text).unwrap_or(Self::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_role_allows_nothing() {
        for permission in Permission::ALL {
            assert_eq!(Permission::parse(permission.as_str()), permission);
        }
        for text in ["", "owner", "WRITE", "write "] {
            assert_eq!(Permission::parse(text), Permission::None, "{text}");
        }
    }
}
