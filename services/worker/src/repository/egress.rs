//! The door of a workspace to the network and to private repositories. The broker opens it before the first tool of a turn, with what the settings allow,
//! and before a private repository is cloned.

use super::{patience::with_patience, secrets::SetupSecrets};
use crate::process::{
    broker::{Broker, away},
    deps::Deps,
    sandbox::Identity,
};
use domain::{egress::git::GitPrefix, ids::ProjectId, policy::level::Level, secret::SecretName};
use rpc::v1::{self, AllowList, GitCredential, SecretVariable};
use settings::{LevelHosts, Settings};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as StdMutex, PoisonError},
};
use tokio::sync::Mutex;
use tonic::Status;

/// The door. Clones share it.
#[derive(Clone)]
pub(crate) struct Egress {
    deps: Arc<Deps>,
    identity: Identity,
    project: ProjectId,
    /// What the newest settings allow.
    wanted: Arc<StdMutex<Option<DoorRules>>>,
    /// What this loop last opened it for. Held during a call, so that calls arrive in their order.
    opened: Arc<Mutex<Option<DoorRules>>>,
}

/// What a door allows.
#[derive(Debug, Clone, Default, PartialEq)]
struct DoorRules {
    lists: Vec<AllowList>,
    git: Vec<GitCredential>,
    secrets: Vec<SecretVariable>,
}

impl Egress {
    pub(super) fn new(deps: Arc<Deps>, identity: Identity, project: ProjectId) -> Self {
        Self { deps, identity, project, wanted: Arc::default(), opened: Arc::default() }
    }

    /// Notes what the settings allow. Without any list the door is opened too: it then tells programs which setting is missing.
    pub(crate) fn allow(&self, settings: &Settings) {
        let lists = settings.network().iter().map(|hosts| allow_list("environment.network.allow", hosts));
        let git = git_credentials(&settings.git_credentials);
        let rules = DoorRules { lists: lists.collect(), git, secrets: vec![] };
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(rules);
    }

    /// Opens the door for the clone of a workspace that does not exist yet. Until the settings of its repository are known, it leads to no host of the
    /// network.
    ///
    /// # Errors
    /// Those of the broker; `broker_unavailable`.
    pub(super) async fn open_for_clone(&self, git: &BTreeMap<GitPrefix, SecretName>) -> Result<(), Status> {
        self.require(DoorRules { git: git_credentials(git), ..DoorRules::default() }).await
    }

    /// Opens the door for a setup or an install, before the workspace exists. Without a list it leads to no host of the network.
    ///
    /// # Errors
    /// As [`Egress::ready`]; with secrets, also `broker_unavailable`.
    pub(super) async fn open_for_setup(
        &self,
        network: &[LevelHosts],
        git: &BTreeMap<GitPrefix, SecretName>,
        secrets: &SetupSecrets,
    ) -> Result<(), Status> {
        let setting = "environment.network.setup";
        let mut lists: Vec<_> = network.iter().map(|hosts| allow_list(setting, hosts)).collect();
        if lists.is_empty() {
            lists.push(AllowList { setting: setting.to_owned(), entries: vec![] });
        }
        let rules = DoorRules { lists, git: git_credentials(git), secrets: secrets.variables.clone() };
        if rules.secrets.is_empty() { self.change(rules).await } else { self.require(rules).await }
    }

    /// Opens the door for what cannot be done without it.
    ///
    /// # Errors
    /// Those of the broker; `broker_unavailable`.
    async fn require(&self, rules: DoorRules) -> Result<(), Status> {
        let Some(broker) = &self.deps.broker else {
            let text = "the settings name a secret, and this deployment has no broker that could use it";
            return Err(rpc::status::precondition("broker_unavailable", text));
        };
        let mut opened = self.opened.lock().await;
        with_patience(|| async { self.open(broker, &rules).await.map_err(away) }).await?;
        *opened = Some(rules);
        Ok(())
    }

    /// Closes the door to all hosts, before the workspace exists: a setup may have left it open.
    ///
    /// # Errors
    /// As [`Egress::ready`].
    pub(super) async fn close(&self) -> Result<(), Status> {
        self.change(DoorRules::default()).await
    }

    async fn open(&self, broker: &Broker, rules: &DoorRules) -> Result<(), Status> {
        let DoorRules { lists, git, secrets } = rules.clone();
        let door = v1::OpenEgressRequest {
            tenant_id: self.identity.tenant.to_string(),
            session_id: self.identity.workspace.to_string(),
            lists,
            project_id: self.project.to_string(),
            git_credentials: git,
            secrets,
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
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match wanted {
            Some(rules) => self.change(rules).await,
            None => Ok(()),
        }
    }

    async fn change(&self, rules: DoorRules) -> Result<(), Status> {
        let Some(broker) = &self.deps.broker else { return Ok(()) };
        let mut opened = self.opened.lock().await;
        if opened.as_ref() == Some(&rules) {
            return Ok(());
        }
        match self.open(broker, &rules).await {
            Ok(()) => {
                *opened = Some(rules);
                Ok(())
            }
            // This machine has no doors, now or at all.
            Err(status)
                if matches!(rpc::status::code_of(&status).as_deref(), None | Some("egress_unavailable")) =>
            {
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

fn allow_list(setting: &str, hosts: &LevelHosts) -> AllowList {
    let place = match hosts.level {
        Level::Environment => "the environment that the repository proposes".to_owned(),
        level => format!("the settings of the {}", level.as_str()),
    };
    AllowList { setting: format!("{setting} in {place}"), entries: hosts.allow.clone() }
}

fn git_credentials(git: &BTreeMap<GitPrefix, SecretName>) -> Vec<GitCredential> {
    let credential = |(prefix, secret): (&GitPrefix, &SecretName)| GitCredential {
        url_prefix: prefix.to_string(),
        secret: secret.to_string(),
    };
    git.iter().map(credential).collect()
}
