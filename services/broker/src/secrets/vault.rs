//! Stores and opens secrets, and leaves a line of audit for each. Its callers decide who may do what.

use super::{
    deployment_key::DeploymentKey,
    envelope::{self, EnvelopeError, SecretPlace},
};
use chassis::{secret::SecretBytes, telemetry::AUDIT};
use domain::{
    ids::{ProjectId, TenantId},
    secret::{SecretAddress, SecretName},
};
use store::{
    broker::{BrokerStore, secrets::SecretVersion},
    error::{Entity, Error as StoreError},
    tenant::secrets::Secret,
};

/// The secrets of all tenants.
#[derive(Debug)]
pub struct Vault {
    store: BrokerStore,
    key: DeploymentKey,
}

/// Why a secret cannot be stored or opened.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// It has no value.
    #[error("the value of the secret is empty")]
    Empty,
    /// The key is not the one that the stored secrets were sealed with.
    #[error(
        "the secrets of this deployment were sealed with the key {stored}, and this is the key {own}; restore the key file that belongs to the database"
    )]
    OtherKey {
        /// The identity of the key in the database.
        stored: String,
        /// That of the key that this process has.
        own: String,
    },
    /// It cannot be sealed or opened.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An opened secret.
#[derive(Debug)]
pub struct OpenedSecret {
    /// Its version, for whatever is made with it.
    pub version: u64,
    /// Its value.
    pub value: SecretBytes,
}

impl Vault {
    /// The secrets of a deployment, and its key.
    pub fn new(store: BrokerStore, key: DeploymentKey) -> Self {
        Self { store, key }
    }

    /// Checks that the key is the one that the stored secrets were sealed with. The first key that a database sees is the one of its deployment.
    ///
    /// # Errors
    /// `OtherKey`; `Store`.
    pub async fn check_key(&self) -> Result<(), VaultError> {
        let stored = self.store.register_key(self.key.id()).await?;
        if stored == self.key.id() {
            return Ok(());
        }
        Err(VaultError::OtherKey { stored, own: self.key.id().to_owned() })
    }

    /// Stores the next version of a secret in the name of `actor`.
    ///
    /// # Errors
    /// `Empty`, `Envelope`; `Store`: stored or not, if the connection broke.
    pub async fn put(
        &self,
        tenant: TenantId,
        address: SecretAddress,
        value: &SecretBytes,
        actor: &str,
    ) -> Result<Secret, VaultError> {
        if value.expose().is_empty() {
            return Err(VaultError::Empty);
        }
        let change = self.store.begin_change(tenant, address.clone()).await?;
        let id = tenant.to_string();
        let place = SecretPlace::of(&id, &address, change.version());
        let secret = change.finish_change(&envelope::seal(value, &place, &self.key)?, actor).await?;
        tracing::info!(
            target: AUDIT,
            {
                tenant.id = %tenant,
                project.id = address.scope(),
                secret.name = %address.name,
                secret.version = secret.version,
                actor,
            },
            "a secret was set"
        );
        Ok(secret)
    }

    /// Opens the secret of the project, or else that of the tenant, for `purpose`, in the words of the setting that names it. `None`: neither has one
    /// of this name.
    ///
    /// # Errors
    /// `Envelope`, `Store`.
    pub async fn find(
        &self,
        tenant: TenantId,
        project: Option<&ProjectId>,
        name: &SecretName,
        purpose: &str,
    ) -> Result<Option<OpenedSecret>, VaultError> {
        for project in project.cloned().map(Some).into_iter().chain([None]) {
            let address = SecretAddress { project, name: name.clone() };
            match self.take(tenant, &address, purpose).await {
                Err(VaultError::Store(StoreError::NotFound(Entity::Secret))) => {}
                opened => return opened.map(Some),
            }
        }
        Ok(None)
    }

    /// Opens one secret.
    ///
    /// # Errors
    /// `Envelope`; `Store`, also for a secret that does not exist.
    pub async fn take(
        &self,
        tenant: TenantId,
        address: &SecretAddress,
        purpose: &str,
    ) -> Result<OpenedSecret, VaultError> {
        let SecretVersion { version, sealed } = self.store.use_secret(tenant, address).await?;
        let id = tenant.to_string();
        let value = envelope::open(&sealed, &SecretPlace::of(&id, address, version), &self.key);
        tracing::info!(
            target: AUDIT,
            {
                tenant.id = %tenant,
                project.id = address.scope(),
                secret.name = %address.name,
                secret.version = version,
                purpose,
                error.code = value.as_ref().err().map(|error| error.code()),
            },
            "a secret was used"
        );
        Ok(OpenedSecret { version, value: value? })
    }

    /// Checks that Postgres answers.
    ///
    /// # Errors
    /// `Store`.
    pub async fn ping(&self) -> Result<(), VaultError> {
        Ok(self.store.ping().await?)
    }

    /// Closes the connections, after the queries in flight have ended.
    pub async fn close(&self) {
        self.store.close().await;
    }
}
