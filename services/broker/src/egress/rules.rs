//! What the door of a session allows, as its file keeps it: a broker that starts again opens the doors that it had.

use super::git::rules::GitRules;
use crate::error::Error;
use domain::egress::{
    allow::{AllowList, AllowListError, AllowLists, EGRESS_ENTRIES_MAX},
    host::HostName,
};
use domain::ids::SessionId;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

/// For what a door is opened, with the opening of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoorStage {
    /// A worker of an earlier version does not say.
    Unknown,
    /// For a clone, a setup or an install: no program of the session runs.
    Before(u32),
    /// The files are open.
    Open(u32),
}

/// Sessions of one workspace with hosts that people have allowed. Beyond it: `argument_invalid`.
const GRANTS_MAX: usize = 200;

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
    /// What people have allowed in each session that uses the workspace. Brokers of earlier versions wrote none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<SessionId, Grant>,
}

/// The hosts that people have allowed in one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Of the loop that said so.
    pub epoch: u64,
    /// The hosts; empty: only the epoch counts.
    pub hosts: BTreeSet<String>,
}

/// The list of one level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleList {
    /// The setting, for people.
    pub setting: String,
    /// Hosts, `*.` and a host, and presets.
    pub entries: Vec<String>,
    /// Likewise, those that people may allow besides. Brokers of earlier versions wrote none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
}

impl DoorRules {
    /// Reads the entries.
    ///
    /// # Errors
    /// By the first wrong one.
    pub(super) fn parse(&self) -> Result<AllowLists, AllowListError> {
        let lists = self.lists.iter().map(|list| AllowList::parse(&list.setting, &list.entries, &list.ask));
        let granted = self.grants.values().flat_map(|grant| &grant.hosts);
        // A text that is no host allows none.
        let granted = granted.filter_map(|host| HostName::parse(host).ok());
        Ok(AllowLists::new(lists.collect::<Result<_, _>>()?).granting(granted))
    }

    /// These rules, with what stays of those that the door has.
    ///
    /// # Errors
    /// `egress_sealed`, `epoch_stale`; `argument_invalid`: too many grants.
    pub(super) fn after(mut self, known: Option<Self>, stage: DoorStage) -> Result<Self, Error> {
        let (sealed, mut grants) = known.map_or_else(Default::default, |known| (known.sealed, known.grants));
        let opened = match stage {
            DoorStage::Before(opening) if sealed.is_some_and(|sealed| opening <= sealed) => {
                return Err(Error::DoorSealed);
            }
            DoorStage::Open(opening) => Some(opening),
            DoorStage::Before(_) | DoorStage::Unknown => None,
        };
        if matches!(stage, DoorStage::Before(_)) {
            // The sessions say it again when they have files.
            grants.clear();
        }
        for (session, grant) in std::mem::take(&mut self.grants) {
            if grants.get(&session).is_some_and(|known| known.epoch > grant.epoch) {
                return Err(Error::EpochStale);
            }
            if !grant.hosts.is_empty() || grants.contains_key(&session) {
                grants.insert(session, grant);
            }
        }
        if grants.len() > GRANTS_MAX {
            grants.retain(|_, grant| !grant.hosts.is_empty());
        }
        if grants.len() > GRANTS_MAX || grants.values().any(|grant| grant.hosts.len() > EGRESS_ENTRIES_MAX) {
            return Err(Error::ArgumentInvalid("people have allowed too many hosts"));
        }
        Ok(Self { sealed: sealed.max(opened), grants, ..self })
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
