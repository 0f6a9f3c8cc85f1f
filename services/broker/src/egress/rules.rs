//! What the door of a session allows, as its file keeps it: a broker that starts again opens the doors that it had.

use super::git::rules::GitRules;
use domain::egress::allow::{AllowList, AllowListError, AllowLists};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs::Permissions, io, os::unix::fs::PermissionsExt as _, path::Path};

/// The lists of all levels, and the repositories that have a credential. `{"lists": [{"setting": "environment.network.allow of the project", "entries":
/// ["preset:npm"]}], "git": {"project": "prj_…", "credentials": {"https://github.com/acme/": "GITHUB_TOKEN"}}}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorRules {
    /// Each must allow a host.
    pub lists: Vec<RuleList>,
    /// The repositories. Brokers of earlier versions wrote none.
    #[serde(default)]
    pub git: GitRules,
    /// The name of a secret for each variable of the script of a setup or an install. The project is that of `git`. The file has none: a broker that starts again knows of no script that waits for them.
    #[serde(skip)]
    pub secrets: BTreeMap<String, String>,
    /// The newest opening of the workspace whose files are open. Brokers of earlier versions wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<u32>,
}

/// The list of one level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleList {
    /// The setting, for people.
    pub setting: String,
    /// Hosts, `*.` and a host, and presets.
    pub entries: Vec<String>,
}

impl DoorRules {
    /// Reads the entries.
    ///
    /// # Errors
    /// By the first wrong one.
    pub(super) fn parse(&self) -> Result<AllowLists, AllowListError> {
        let lists = self.lists.iter().map(|list| AllowList::parse(&list.setting, &list.entries));
        Ok(AllowLists::new(lists.collect::<Result<_, _>>()?))
    }

    /// Reads a file.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }

    /// Replaces a file. After a crash of the machine there are no sandboxes, and no rules are needed.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        replace(path, &serde_json::to_vec(self)?, 0o600)
    }
}

/// Replaces a file that has this mode: a reader sees the old content or the new one.
///
/// # Errors
/// Those of the file system.
pub(super) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content)?;
    std::fs::set_permissions(&beside, Permissions::from_mode(mode))?;
    std::fs::rename(&beside, path)
}
