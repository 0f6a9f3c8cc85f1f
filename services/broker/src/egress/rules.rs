//! What the door of a session allows, as its file keeps it: a broker that starts again opens the doors that it had.

use super::{clock::now, error::EgressError, git::rules::GitRules};
use domain::{
    egress::{
        allow::{AllowList, AllowListError, AllowLists, EGRESS_ENTRIES_MAX},
        host::HostName,
    },
    ids::{SessionId, Timestamp},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
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

/// Sessions of one workspace with hosts that people have allowed: all of a tree. Beyond it: `argument_invalid`.
const GRANTS_MAX: usize = 512;

/// The lists of all levels, and the repositories that have a credential. `{"lists": [{"setting": "environment.network.allow of the project", "entries":
/// ["preset:npm"]}], "git": {"project": "prj_…", "credentials": {"https://github.com/acme/": "GITHUB_TOKEN"}}}`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Grants::is_empty")]
    pub grants: Grants,
}

/// The hosts that people have allowed in each session that uses a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(BTreeMap<SessionId, Grant>);

/// The hosts that people have allowed in one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Of the loop that said so.
    pub epoch: u64,
    /// The hosts; empty: only the epoch counts.
    pub hosts: BTreeSet<String>,
    pub expires_at: Timestamp,
}

impl Grant {
    /// The hosts that a loop opens from now on.
    pub fn valid_for(time: Duration, epoch: u64, hosts: BTreeSet<String>) -> Self {
        let ms = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Self { epoch, hosts, expires_at: Timestamp(now().0.saturating_add(ms)) }
    }
}

impl Grants {
    /// Replaces the hosts of a session, and forgets those of all sessions that have closed.
    ///
    /// # Errors
    /// `epoch_stale`; `argument_invalid`: too many hosts or sessions.
    pub(super) fn set(
        &mut self,
        session: SessionId,
        grant: Grant,
        now: Timestamp,
    ) -> Result<(), EgressError> {
        if self.0.get(&session).is_some_and(|known| known.epoch > grant.epoch) {
            return Err(EgressError::EpochStale);
        }
        self.0.retain(|_, grant| grant.expires_at > now);
        let has_room = self.0.contains_key(&session) || self.0.len() < GRANTS_MAX;
        if !has_room || grant.hosts.len() > EGRESS_ENTRIES_MAX {
            return Err(EgressError::ArgumentInvalid("people have allowed too many hosts"));
        }
        self.0.insert(session, grant);
        Ok(())
    }

    /// Whether people have allowed a host.
    pub(super) fn allow(&self, host: &HostName, now: Timestamp) -> bool {
        self.0.values().any(|grant| grant.expires_at > now && grant.hosts.contains(host.as_str()))
    }

    /// Closes all hosts. The epochs still keep late workers out.
    fn close(&mut self) {
        self.0.values_mut().for_each(|grant| grant.hosts.clear());
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The list of one level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleList {
    /// The setting, for people.
    pub setting: String,
    /// Hosts, `*.` and a host, and presets.
    pub entries: Vec<String>,
    /// Likewise, those that people may allow in addition. Brokers of earlier versions wrote none.
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
        Ok(AllowLists::new(lists.collect::<Result<_, _>>()?))
    }

    /// These rules, with what stays of those that the door has.
    ///
    /// # Errors
    /// `egress_sealed`; `argument_invalid`: secrets, unless the files are known to be closed.
    pub(super) fn after(self, known: Option<Self>, stage: DoorStage) -> Result<Self, EgressError> {
        if !self.secrets.is_empty() && !matches!(stage, DoorStage::Before(_)) {
            return Err(EgressError::ArgumentInvalid(
                "a door gives secrets only before the files of its session are open",
            ));
        }
        let (sealed, mut grants) = known.map_or_else(Default::default, |known| (known.sealed, known.grants));
        let opened = match stage {
            DoorStage::Before(opening) if sealed.is_some_and(|sealed| opening <= sealed) => {
                return Err(EgressError::DoorSealed);
            }
            DoorStage::Open(opening) => Some(opening),
            DoorStage::Before(_) | DoorStage::Unknown => None,
        };
        if matches!(stage, DoorStage::Before(_)) {
            // Each session sends its hosts again when its files are open.
            grants.close();
        }
        Ok(Self { sealed: sealed.max(opened), grants, ..self })
    }

    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }

    /// Replaces a file. After a crash of the machine there are no sandboxes, and no rules are needed.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        replace(path, &serde_json::to_vec(self)?, 0o600)
    }
}

/// Replaces a file that has this mode: a reader sees the old content or the new one.
pub(super) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = path.with_extension("new");
    std::fs::write(&temporary, content)?;
    std::fs::set_permissions(&temporary, Permissions::from_mode(mode))?;
    std::fs::rename(&temporary, path)
}
