//! Stores and opens secrets, and leaves a line of audit for each. Its callers decide who may do what.

use super::{envelope, error::EnvelopeError, keyring::Keyring, place::SecretPlace};
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
    pub(super) store: BrokerStore,
    pub(super) keys: Keyring,
}

/// Why a secret cannot be stored or opened.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// It has no value.
    #[error("the value of the secret is empty")]
    Empty,
    /// The broker lacks a key that secrets were sealed with.
    #[error(
        "secrets of this deployment were sealed with the key {stored}, and this is the key {own}; restore the key file that belongs to the database, or name it in FLOTILLA_BROKER_FURTHER_KEY_FILES"
    )]
    OtherKey {
        /// The identity of the key in the database.
        stored: String,
        /// That of the newest key that this process has.
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
    /// The secrets of a deployment, and its keys.
    pub fn new(store: BrokerStore, keys: Keyring) -> Self {
        Self { store, keys }
    }

    /// Checks that the broker has all keys that secrets were sealed with, and notes the newest of its own as the one that seals from now on, at all
    /// brokers. Returns whether older keys may still be needed.
    ///
    /// # Errors
    /// `OtherKey`; `Store`.
    pub async fn check_keys(&self) -> Result<bool, VaultError> {
        let noted = self.store.register_key(self.keys.newest().id(), &self.keys.further_ids()).await?;
        let mut ids = std::iter::once(&noted.key_id).chain(&noted.older_key_ids);
        if let Some(missing) = ids.find(|id| self.keys.find(id).is_none()) {
            return Err(self.missing_key(missing));
        }
        Ok(!noted.older_key_ids.is_empty())
    }

    /// Checks that the newest key seals, and opens what it has sealed.
    ///
    /// # Errors
    /// `Envelope`.
    pub async fn check_seal(&self) -> Result<(), VaultError> {
        let place = SecretPlace { tenant: "", project: "", name: "", version: 0 };
        let value = SecretBytes::of(b"a value that nobody stores".to_vec());
        let sealed = envelope::seal(&value, &place, self.keys.newest()).await?;
        envelope::open(&sealed, &place, &self.keys).await?;
        Ok(())
    }

    pub(super) fn missing_key(&self, stored: &str) -> VaultError {
        VaultError::OtherKey { stored: stored.to_owned(), own: self.keys.newest().id().to_owned() }
    }

    /// Stores the next version of a secret in the name of `actor`.
    ///
    /// # Errors
    /// `Empty`, `OtherKey`, `Envelope`; `Store`: stored or not, if the connection broke.
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
        let key = match change.key_id() {
            Some(id) => self.keys.find(id).ok_or_else(|| self.missing_key(id))?,
            None => self.keys.newest(),
        };
        let sealed = envelope::seal(value, &place, key).await?;
        let secret = change.finish_change(&sealed, actor).await?;
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
        let value = envelope::open(&sealed, &SecretPlace::of(&id, address, version), &self.keys).await;
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
