//! How clients show a project.

use serde::{Deserialize, Serialize};

/// How clients show a project. These settings do not affect its sessions. An absent field was not set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProjectDisplay {
    /// The shown name; empty: the project's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<Icon>,
    /// The commands that clients run for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
}

impl ProjectDisplay {
    /// Returns the display after a change. Fields that `change` does not set stay.
    #[must_use]
    pub fn changed(&self, change: &Self) -> Self {
        let (was, icon) = (self.icon.clone().unwrap_or_default(), change.icon.clone().unwrap_or_default());
        let icon = Icon {
            url: icon.url.or(was.url),
            instead: icon.instead.or(was.instead),
            color: icon.color.or(was.color),
        };
        Self {
            name: change.name.clone().or_else(|| self.name.clone()),
            icon: Some(icon).filter(|icon| *icon != Icon::default()),
            commands: change.commands.clone().or_else(|| self.commands.clone()),
        }
    }
}

/// A picture. The client chooses absent fields.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Icon {
    /// A URL; may be a `data:` URL with the picture itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A picture that replaces the one that a client found.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// The background colour; a name from the client's palette.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
}

/// Commands that a client runs on its own machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Commands {
    /// The command that prepares a new copy of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
}
