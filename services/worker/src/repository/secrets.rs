//! The secrets of the settings that setup and install get. A worker knows their names and versions; the broker gives the values to the script.

use super::stored::from_store;
use crate::process::{deps::Deps, sandbox::Identity};
use domain::{ids::ProjectId, secret::SecretName, session::files::PeoplesFiles};
use rpc::v1::{self, ErrorCode};
use std::collections::BTreeMap;
use tonic::Status;

/// The secrets of setup and install.
#[derive(Debug, Clone, Default)]
pub(super) struct SetupSecrets {
    pub(super) variables: Vec<v1::SecretVariable>,
    /// For the sandbox: `NPM_TOKEN=NPM_TOKEN@3`. What a script made with another version is another environment.
    pub(super) versions: Vec<String>,
}

/// What runs with the secrets.
#[derive(Debug, Clone, Copy)]
pub(super) enum SecretUse {
    /// A setup: it sees no file of a session.
    Setup,
    /// An install, perhaps after a setup: it runs the files.
    Install(PeoplesFiles),
}

impl SetupSecrets {
    /// Finds the newest versions of `named`: the secrets of the project, or else of the tenant, by their variable. No secret is for scripts with an agent's files.
    ///
    /// # Errors
    /// `secret_not_found`; `store_unavailable`.
    pub(super) async fn find(
        deps: &Deps,
        identity: &Identity,
        project: &ProjectId,
        named: &BTreeMap<String, SecretName>,
        _of: SecretUse,
    ) -> Result<Self, Status> {
        if named.is_empty() {
            return Ok(Self::default());
        }
        let (store, tenant) = (&deps.store, identity.tenant);
        let names: Vec<SecretName> = named.values().cloned().collect();
        let versions = from_store(|| store.find_secret_versions(tenant, project, &names)).await?;
        let mut secrets = Self::default();
        for (variable, name) in named {
            let version = versions.get(name).ok_or_else(|| missing(name))?;
            secrets.versions.push(format!("{variable}={name}@{version}"));
            let (variable, secret) = (variable.clone(), name.to_string());
            secrets.variables.push(v1::SecretVariable { variable, secret });
        }
        Ok(secrets)
    }
}

fn missing(name: &SecretName) -> Status {
    let text = format!(
        "there is no secret {name}, which environment.secrets names; set it with `flotilla secret set {name}`"
    );
    rpc::status::error(ErrorCode::SecretNotFound, text)
}
