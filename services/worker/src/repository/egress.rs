//! The door of a workspace to the network and to private repositories. The broker opens it before the first tool of a turn, with what the settings allow,
//! and before a private repository is cloned.

use super::{grants::HostGrants, patience::with_patience, secrets::SetupSecrets};
use crate::process::{
    broker::{Broker, away},
    deps::Deps,
    sandbox::{Identity, has_code},
};
use domain::{
    egress::{
        git::{GitAddress, GitPrefix, find_address},
        host::HostName,
    },
    ids::ProjectId,
    opening::Assurance,
    secret::SecretName,
};
use rpc::v1::{self, AllowList, ErrorCode, GitCredential, SecretVariable};
use settings::{LevelHosts, Settings};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, atomic::Ordering},
};
use tokio::sync::Mutex;
use tonic::Status;

/// The setting with the hosts of a session.
const ALLOW: &str = "environment.network.allow";
/// The same, while it does not count yet.
const ALLOW_LATER: &str = "environment.network.allow (which counts from the first tool call of a turn)";
/// The setting with the hosts of a setup and an install.
const SETUP: &str = "environment.network.setup";

/// The door. Clones share it.
#[derive(Clone)]
pub(crate) struct Egress {
    deps: Arc<Deps>,
    identity: Identity,
    project: ProjectId,
    /// What the newest settings and people allow.
    wanted: Arc<StdMutex<Option<WantedAccess>>>,
    grants: HostGrants,
    /// Held during a call, so that calls arrive in their order.
    state: Arc<Mutex<DoorState>>,
}

/// What this loop knows of the door.
#[derive(Debug, PartialEq)]
enum DoorState {
    /// No loop has opened it.
    Untouched,
    /// An earlier loop may have opened it, or a call has ended without an answer.
    Unknown,
    /// The broker has confirmed these rules.
    Confirmed(DoorRules),
}

impl DoorState {
    /// Notes what becomes of a call that sets rules.
    async fn confirm(
        &mut self,
        rules: &DoorRules,
        call: impl Future<Output = Result<(), Status>>,
    ) -> Result<(), Status> {
        // The broker may have the rules although no answer comes.
        *self = Self::Unknown;
        call.await?;
        *self = Self::Confirmed(rules.clone());
        Ok(())
    }
}

/// Whether the files of a workspace are open, so that programs of the session may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    Closed,
    Open,
}

#[derive(Debug, Clone, PartialEq)]
struct DoorRules {
    lists: Vec<AllowList>,
    git: Vec<GitCredential>,
    /// The URL of the public repository whose objects of Git LFS the door reads; empty: none.
    public: String,
    secrets: Vec<SecretVariable>,
}

/// The repositories that a clone reads through the door.
#[derive(Debug, Clone, Copy)]
pub(super) struct CloneAccess<'a> {
    pub(super) git: &'a BTreeMap<GitPrefix, SecretName>,
    /// The URL of the repository; empty: none.
    pub(super) url: &'a str,
}

impl CloneAccess<'_> {
    /// Whether the repository is below a prefix.
    pub(super) fn has_credential(&self) -> bool {
        find_address(self.git.keys(), self.url).is_some()
    }

    /// Whether there is anything to be read through the door.
    pub(super) fn is_empty(&self) -> bool {
        self.git.is_empty() && self.public().is_empty()
    }

    /// The address of the repository at which the door reads its objects of Git LFS; empty: there is none.
    pub(super) fn lfs_url(&self) -> String {
        find_address(self.git.keys(), self.url).map_or_else(|| self.public(), |address| address.to_string())
    }

    /// The URL of the repository, if only a reader without a credential can read it; else empty.
    fn public(&self) -> String {
        let is_public = !self.has_credential() && GitAddress::parse_url(self.url).is_ok();
        if is_public { self.url.to_owned() } else { String::new() }
    }
}

/// What the commands of a turn may reach.
#[derive(Debug, Clone)]
struct WantedAccess {
    rules: DoorRules,
    /// What people have allowed in this session; `None`: the settings let people allow nothing.
    granted: Option<BTreeSet<HostName>>,
}

impl DoorRules {
    /// No host, no repository and no secret.
    fn closed() -> Self {
        // Without any list, pages of all hosts could be read.
        let lists = vec![empty_list(ALLOW_LATER)];
        Self { lists, git: vec![], public: String::new(), secrets: vec![] }
    }

    fn is_closed(&self) -> bool {
        self.secrets.is_empty() && self.lists.iter().any(|list| list.setting == ALLOW_LATER)
    }
}

impl Egress {
    pub(super) fn new(deps: Arc<Deps>, identity: Identity, project: ProjectId) -> Self {
        let is_first = identity.epoch == 1 && identity.workspace == identity.session;
        let state = if is_first { DoorState::Untouched } else { DoorState::Unknown };
        let (grants, state) = (HostGrants::new(identity.clone()), Arc::new(Mutex::new(state)));
        Self { deps, identity, project, wanted: Arc::default(), grants, state }
    }

    /// Notes what the settings allow, and the hosts that people have allowed (`None`: the settings let them allow nothing). Without any list the door is opened too: it then tells programs which setting is
    /// missing.
    pub(crate) fn allow(&self, settings: &Settings, granted: Option<BTreeSet<HostName>>) {
        let lists = settings.network().iter().map(|hosts| allow_list(ALLOW, hosts));
        let git = git_credentials(&settings.git_credentials);
        let rules = DoorRules { lists: lists.collect(), git, public: String::new(), secrets: vec![] };
        *self.wanted() = Some(WantedAccess { rules, granted });
    }

    /// Closes the hosts that people have allowed until the turn ends: all except these. The broker learns it soon. If it does not, they close by
    /// themselves.
    pub(crate) fn close_hosts_except(&self, kept: BTreeSet<HostName>) {
        if let Some(granted) = self.wanted().as_mut().and_then(|wanted| wanted.granted.as_mut()) {
            granted.clone_from(&kept);
        }
        let (this, deps) = (self.clone(), Arc::clone(&self.deps));
        self.deps.tasks.spawn("egress hosts", async move {
            if let Some(broker) = &deps.broker {
                this.grants.set(broker, kept).await;
            }
        });
    }

    fn wanted(&self) -> MutexGuard<'_, Option<WantedAccess>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the door for the clone of a workspace that does not exist yet. Until the settings of its repository are known, it leads to no host of the
    /// network.
    ///
    /// # Errors
    /// Those of the broker; `broker_unavailable`.
    pub(super) async fn open_for_clone(&self, access: CloneAccess<'_>) -> Result<(), Status> {
        let (git, public) = (git_credentials(access.git), access.public());
        self.open_or_fail(DoorRules { git, public, ..DoorRules::closed() }).await
    }

    /// Opens the door for a setup or an install, before the workspace exists. Without a list it leads to no host of the network. A setup without
    /// secrets also runs where there are no doors.
    ///
    /// # Errors
    /// Those of the broker; `broker_unavailable`.
    pub(super) async fn open_for_setup(
        &self,
        network: &[LevelHosts],
        access: CloneAccess<'_>,
        secrets: &SetupSecrets,
    ) -> Result<(), Status> {
        let mut lists: Vec<_> = network.iter().map(|hosts| allow_list(SETUP, hosts)).collect();
        if lists.is_empty() {
            lists.push(empty_list(SETUP));
        }
        let (git, public) = (git_credentials(access.git), access.public());
        let rules = DoorRules { lists, git, public, secrets: secrets.variables.clone() };
        let needs_door = !rules.secrets.is_empty();
        if !needs_door && self.deps.broker.is_none() {
            return Ok(());
        }
        match self.open_or_fail(rules).await {
            Err(status) if !needs_door && has_no_doors(&status) => Ok(()),
            opened => opened,
        }
    }

    /// Opens the door, and fails if no broker confirms it. It asks even if this loop knows the rules: a restarted broker has forgotten the secrets.
    ///
    /// # Errors
    /// Those of the broker; `broker_unavailable`.
    async fn open_or_fail(&self, rules: DoorRules) -> Result<(), Status> {
        let Some(broker) = &self.deps.broker else {
            let text = "the settings name a secret, and this deployment has no broker that could use it";
            return Err(rpc::status::error(ErrorCode::BrokerUnavailable, text));
        };
        let state = &mut *self.state.lock().await;
        state.confirm(&rules, self.set_patiently(broker, &rules)).await
    }

    /// Closes the door to all hosts and secrets, before the workspace exists. A clone, a setup or an install, also of another loop, may have left it open.
    ///
    /// # Errors
    /// `egress_sealed`: another loop has opened the files. If the broker must confirm it, also its others: the door may still be open.
    pub(super) async fn close(&self, assurance: Assurance) -> Result<(), Status> {
        let Some(broker) = &self.deps.broker else { return Ok(()) };
        let is_sure = assurance == Assurance::Confirmed;
        let state = &mut *self.state.lock().await;
        match state {
            DoorState::Untouched if !is_sure => return Ok(()),
            DoorState::Confirmed(rules) if rules.is_closed() => return Ok(()),
            DoorState::Untouched | DoorState::Confirmed(_) | DoorState::Unknown => {}
        }
        let closed = DoorRules::closed();
        let result = if is_sure {
            state.confirm(&closed, self.set_patiently(broker, &closed)).await
        } else {
            state.confirm(&closed, self.set(broker, &closed, Files::Closed)).await
        };
        match result {
            Err(status) if is_sealed(&status) || is_sure && !has_no_doors(&status) => Err(status),
            Err(status) => {
                tracing::debug!("the door was not closed: {}", status.message());
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Closes the door to the repositories of a clone that opened no files. If the broker does not answer, the next rules close it.
    pub(super) async fn close_to_repositories(&self) {
        self.shut(Files::Closed).await;
    }

    /// Tells the broker that the files are open: the door then takes no rules of another loop that would still set them up. The first rules of a turn
    /// seal it too.
    pub(super) async fn seal(&self) {
        self.shut(Files::Open).await;
    }

    /// Sets the rules that lead nowhere, if the broker answers.
    async fn shut(&self, files: Files) {
        let Some(broker) = &self.deps.broker else { return };
        let state = &mut *self.state.lock().await;
        let closed = DoorRules::closed();
        if let Err(status) = state.confirm(&closed, self.set(broker, &closed, files)).await {
            tracing::debug!("the door was not shut: {}", status.message());
        }
    }

    /// Sets rules for what comes before the files are open.
    async fn set_patiently(&self, broker: &Broker, rules: &DoorRules) -> Result<(), Status> {
        with_patience(|| async { self.set(broker, rules, Files::Closed).await.map_err(away) }).await
    }

    async fn set(&self, broker: &Broker, rules: &DoorRules, files: Files) -> Result<(), Status> {
        let DoorRules { lists, git, public, secrets } = rules.clone();
        let door = v1::OpenEgressRequest {
            tenant_id: self.identity.tenant.to_string(),
            session_id: self.identity.workspace.to_string(),
            lists,
            project_id: self.project.to_string(),
            git_credentials: git,
            secrets,
            workspace_opening: Some(self.identity.opening.load(Ordering::Relaxed)),
            has_files: files == Files::Open,
            public_repository: public,
        };
        broker.open_egress(door).await
    }

    /// Opens the door for what the settings allow, unless this loop did. Call it when the files are open, because the settings of the
    /// repository are known only then.
    ///
    /// # Errors
    /// The broker refuses: the door may still have wider rules, so nothing may run. A broker that is away serves no door, and commands run without a
    /// network.
    pub(crate) async fn ready(&self) -> Result<(), Status> {
        let wanted = self.wanted().clone();
        let Some((WantedAccess { rules, granted }, broker)) = wanted.zip(self.deps.broker.as_ref()) else {
            return Ok(());
        };
        self.set_rules(broker, rules).await?;
        if let Some(hosts) = granted {
            self.grants.set(broker, hosts).await;
        }
        Ok(())
    }

    /// Sets the rules of a turn, unless the broker has confirmed them.
    async fn set_rules(&self, broker: &Broker, rules: DoorRules) -> Result<(), Status> {
        let state = &mut *self.state.lock().await;
        if matches!(state, DoorState::Confirmed(confirmed) if *confirmed == rules) {
            return Ok(());
        }
        match state.confirm(&rules, self.set(broker, &rules, Files::Open)).await {
            Ok(()) => Ok(()),
            // There are no doors, now or at all. The files are open, so the rules that the door had are those of a turn.
            Err(status) if rpc::status::code_of(&status).is_none() || has_no_doors(&status) => {
                tracing::debug!("no door to the network: {}", status.message());
                Ok(())
            }
            Err(status) => {
                metrics::counter!("flotilla_worker_egress_failures_total").increment(1);
                tracing::warn!("the broker does not set what a session may reach: {}", status.message());
                Err(status)
            }
        }
    }
}

/// Whether another loop has opened the files.
pub(super) fn is_sealed(status: &Status) -> bool {
    has_code(status, ErrorCode::EgressSealed)
}

/// Whether the broker says that its machine has no doors.
pub(super) fn has_no_doors(status: &Status) -> bool {
    has_code(status, ErrorCode::EgressUnavailable)
}

/// The list of a setting that allows nothing.
fn empty_list(setting: &str) -> AllowList {
    AllowList { setting: setting.to_owned(), ..AllowList::default() }
}

fn allow_list(setting: &str, hosts: &LevelHosts) -> AllowList {
    AllowList { setting: hosts.setting(setting), entries: hosts.allow.clone(), ask: hosts.ask.clone() }
}

fn git_credentials(git: &BTreeMap<GitPrefix, SecretName>) -> Vec<GitCredential> {
    let credential = |(prefix, secret): (&GitPrefix, &SecretName)| GitCredential {
        url_prefix: prefix.to_string(),
        secret: secret.to_string(),
    };
    git.iter().map(credential).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn only_a_repository_over_https_below_no_prefix_is_public() {
        let prefix = GitPrefix::parse("https://github.com/acme/").unwrap();
        let git = BTreeMap::from([(prefix, "TOKEN".parse().unwrap())]);
        let (open, own) = ("https://github.com/open/app.git", "https://github.com/acme/app.git");
        for (url, has_credential, public, lfs_url) in [
            (open, false, open, open),
            (own, true, "", own),
            ("ssh://git@github.com/acme/app.git", true, "", own),
            ("ssh://git@github.com/open/app.git", false, "", ""),
            ("https://user:pass@github.com/open/app.git", false, "", ""),
            ("https://127.0.0.1/open/app.git", false, "", ""),
            ("file:///srv/app", false, "", ""),
            ("", false, "", ""),
        ] {
            let access = CloneAccess { git: &git, url };
            assert_eq!(
                (access.has_credential(), access.public().as_str()),
                (has_credential, public),
                "{url}"
            );
            assert_eq!(access.lfs_url(), lfs_url, "{url}");
            assert!(!access.is_empty(), "submodules may have a credential");
            let without = CloneAccess { git: &BTreeMap::new(), url };
            assert_eq!(without.is_empty(), without.public().is_empty(), "{url}");
        }
    }
}
