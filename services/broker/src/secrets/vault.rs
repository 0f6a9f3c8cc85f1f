//! Stores and opens secrets, and leaves a line of audit for each. Its callers decide who may do what.

use super::{
    deployment_key::DeploymentKey, envelope, error::EnvelopeError, key_file::KEY_BYTES, keyring::Keyring,
    place::SecretPlace,
};
use chassis::{secret::SecretBytes, telemetry::AUDIT};
use domain::{
    egress::secret_servers::{SecretDestination, SecretServers},
    ids::{ProjectId, TenantId},
    secret::{SecretAddress, SecretName},
};
use rpc::v1::ErrorCode;
use store::{
    Actor,
    broker::{
        BrokerStore,
        keys::{KeyRecord, SealedKey},
        secrets::{SecretChange, SecretVersion},
    },
    error::{Entity, Error as StoreError},
    tenant::secrets::Secret,
};

/// Times that the broker seals a value while another key begins to seal each time. Beyond it: `secret_key_changed`.
const PUT_TRIES_MAX: u32 = 3;
/// The text that each noted key has sealed.
const CANARY: &[u8; KEY_BYTES] = b"the key of flotilla seals a text";
/// Where it belongs. No secret has this place.
const CANARY_PLACE: SecretPlace<'_> = SecretPlace { tenant: "", project: "", name: "", version: 0 };

/// The secrets of all tenants.
#[derive(Debug)]
pub struct Vault {
    pub(super) store: BrokerStore,
    pub(super) keys: Keyring,
}

/// Why the vault cannot store or open a secret.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// It has no value.
    #[error("the value of the secret is empty")]
    Empty,
    /// The broker lacks a key that sealed secrets.
    #[error(
        "secrets of this deployment were sealed with the key {stored}, and this is the key {own}; restore the key file that belongs to the database, or name it in FLOTILLA_BROKER_FURTHER_KEY_FILES"
    )]
    OtherKey {
        /// The identity of the key in the database.
        stored: String,
        /// That of the newest key that this process has.
        own: String,
    },
    /// The key does not open what the key of this name has sealed.
    #[error(
        "the key {0} does not open what a key of this name sealed for this deployment; check that FLOTILLA_BROKER_KMS_URL is the address of the key service that has that key"
    )]
    ForeignKey(String),
    /// It is for other servers.
    #[error(
        "the secret {name} is only for {urls}, and goes nowhere else; `flotilla secret set {name} --for URL` names other servers"
    )]
    NotFor { name: SecretName, urls: String },
    /// Each time, another key began to seal before the broker stored the value.
    #[error("another key began to seal secrets meanwhile; try again")]
    KeyChanged,
    /// The broker cannot seal or open it.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl VaultError {
    /// The stable code.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Empty => ErrorCode::SecretEmpty,
            Self::OtherKey { .. } | Self::ForeignKey(_) => ErrorCode::SecretKeyMissing,
            Self::NotFor { .. } => ErrorCode::SecretNotForServer,
            Self::KeyChanged => ErrorCode::SecretKeyChanged,
            Self::Envelope(error) => error.code(),
            Self::Store(error) => match error {
                StoreError::NotFound(Entity::Project) => ErrorCode::ProjectNotFound,
                StoreError::NotFound(Entity::Tenant) => ErrorCode::TenantNotFound,
                StoreError::NotFound(_) => ErrorCode::SecretNotFound,
                StoreError::TooManySecrets(_) => ErrorCode::SecretsTooMany,
                error if error.is_transient() => ErrorCode::StoreUnavailable,
                _ => ErrorCode::Internal,
            },
        }
    }

    /// Whether the key service as a whole caused it. The key has logged it.
    pub(crate) fn is_of_key_service(&self) -> bool {
        matches!(self, Self::Envelope(error) if error.is_of_key_service())
    }
}

/// A secret that is to be stored, without its value.
#[derive(Debug)]
pub struct NewSecret<'a> {
    pub address: SecretAddress,
    /// The servers that may get its value. Empty: the next version keeps the servers of the earlier one.
    pub servers: SecretServers,
    pub actor: &'a Actor,
}

/// What a secret is opened for.
#[derive(Debug, Clone, Copy)]
pub struct SecretUse<'a> {
    /// In the words of the setting that names it.
    pub purpose: &'a str,
    pub destination: SecretDestination<'a>,
}

#[derive(Debug)]
pub struct OpenedSecret {
    /// Its version. The caller notes it with what it makes with the value.
    pub version: u64,
    pub value: SecretBytes,
}

impl Vault {
    /// The secrets of a deployment, and its keys.
    pub fn new(store: BrokerStore, keys: Keyring) -> Self {
        Self { store, keys }
    }

    /// Checks that the broker has all keys that secrets were sealed with, and notes the newest of its own as the one that seals from now on, at all
    /// brokers. Returns whether older keys may still be needed. Tries all keys of the broker; a key service may be away if its key is noted already.
    ///
    /// # Errors
    /// `OtherKey`, `ForeignKey`, `Envelope`; `Store`.
    pub async fn check_keys(&self) -> Result<bool, VaultError> {
        let earlier = self.store.find_keys().await?;
        if let Some(earlier) = &earlier {
            self.check_noted(earlier).await?;
        }
        let noted_ids: Vec<&String> = earlier.iter().flat_map(KeyRecord::key_ids).collect();
        for key in self.keys.further() {
            if noted_ids.iter().all(|id| *id != key.id()) {
                self.store.keep_canary(&check_seal(key).await?).await?;
            }
        }
        let newest = self.keys.newest();
        let noted = match (check_seal(newest).await, earlier.clone()) {
            // Doors and registries without a login need no key.
            (Err(EnvelopeError::KmsUnavailable(_)), Some(noted)) if noted.key_id == newest.id() => noted,
            (canary, _) => self.store.register_key(&canary?, &self.keys.further_ids()).await?,
        };
        // Another broker may have noted a key, or kept the canary of one, since `earlier`.
        if earlier.as_ref() != Some(&noted) {
            self.check_noted(&noted).await?;
        }
        let older = noted.older_key_ids.join(" ");
        let older = if older.is_empty() { "none" } else { older.as_str() };
        tracing::info!(
            target: AUDIT,
            { key.id = noted.key_id },
            "the key {} seals secrets; older keys that they may need: {older}",
            noted.key_id
        );
        Ok(!noted.older_key_ids.is_empty())
    }

    /// Checks that the broker has these keys, and that each opens what it sealed when it was noted.
    async fn check_noted(&self, noted: &KeyRecord) -> Result<(), VaultError> {
        if let Some(missing) = noted.key_ids().find(|id| self.keys.find(id).is_none()) {
            return Err(self.missing_key(missing));
        }
        for canary in &noted.canaries {
            let Some(key) = self.keys.find(&canary.key_id) else { continue };
            match check_canary(key, canary).await {
                // The version that sealed the canary may be too old for the service, and no secret may need it.
                Err(EnvelopeError::KmsUnavailable(_) | EnvelopeError::KmsSecretRefused(_)) => {
                    let id = key.id();
                    tracing::warn!(key.id = id, "the key {id} cannot be checked at this moment");
                }
                Err(EnvelopeError::Damaged) => return Err(VaultError::ForeignKey(key.id().to_owned())),
                checked => checked?,
            }
        }
        Ok(())
    }

    pub(super) fn missing_key(&self, stored: &str) -> VaultError {
        VaultError::OtherKey { stored: stored.to_owned(), own: self.keys.newest().id().to_owned() }
    }

    /// Stores the next version of a secret.
    ///
    /// # Errors
    /// `Empty`, `OtherKey`, `KeyChanged`, `Envelope`; `Store`: stored or not, if the connection broke.
    pub async fn put(
        &self,
        tenant: TenantId,
        new: NewSecret<'_>,
        value: &SecretBytes,
    ) -> Result<Secret, VaultError> {
        if value.expose().is_empty() {
            return Err(VaultError::Empty);
        }
        let secret = self.put_sealed(tenant, &new, value).await?;
        let NewSecret { address, actor, .. } = new;
        tracing::info!(
            target: AUDIT,
            {
                tenant.id = %tenant,
                project.id = address.scope(),
                secret.name = %address.name,
                secret.version = secret.version,
                secret.urls = secret.urls.join(" "),
                actor = actor.name,
            },
            "a secret was set"
        );
        Ok(secret)
    }

    /// Seals a value and stores it. No transaction waits for the key service.
    async fn put_sealed(
        &self,
        tenant: TenantId,
        new: &NewSecret<'_>,
        value: &SecretBytes,
    ) -> Result<Secret, VaultError> {
        let NewSecret { address, servers, actor } = new;
        let id = tenant.to_string();
        for _ in 0..PUT_TRIES_MAX {
            let SecretChange { version, key_id } = self.store.begin_change(tenant, address).await?;
            let key = match &key_id {
                Some(id) => self.keys.find(id).ok_or_else(|| self.missing_key(id))?,
                None => self.keys.newest(),
            };
            let sealed = envelope::seal(value, &SecretPlace::of(&id, address, version), key).await?;
            let value = SecretVersion { version, sealed, urls: servers.urls() };
            if let Some(secret) = self.store.finish_change(tenant, address, &value, actor).await? {
                return Ok(secret);
            }
        }
        Err(VaultError::KeyChanged)
    }

    /// Opens the secret of the project, or else that of the tenant. `None`: neither has one of this name.
    ///
    /// # Errors
    /// `NotFor`, `Envelope`, `Store`.
    pub async fn find(
        &self,
        tenant: TenantId,
        project: Option<&ProjectId>,
        name: &SecretName,
        secret_use: SecretUse<'_>,
    ) -> Result<Option<OpenedSecret>, VaultError> {
        for project in project.cloned().map(Some).into_iter().chain([None]) {
            let address = SecretAddress { project, name: name.clone() };
            match self.take(tenant, &address, secret_use).await {
                Err(VaultError::Store(StoreError::NotFound(Entity::Secret))) => {}
                opened => return opened.map(Some),
            }
        }
        Ok(None)
    }

    /// Opens one secret.
    ///
    /// # Errors
    /// `NotFor`; `Envelope`; `Store`, also for a secret that does not exist.
    pub async fn take(
        &self,
        tenant: TenantId,
        address: &SecretAddress,
        secret_use: SecretUse<'_>,
    ) -> Result<OpenedSecret, VaultError> {
        let SecretUse { purpose, destination } = secret_use;
        let SecretVersion { version, sealed, urls } = self.store.use_secret(tenant, address).await?;
        let id = tenant.to_string();
        // What cannot be read is for nobody.
        let is_for = SecretServers::parse(&urls).is_ok_and(|servers| servers.allow(destination));
        let value = if is_for {
            let opened = envelope::open(&sealed, &SecretPlace::of(&id, address, version), &self.keys).await;
            opened.map_err(VaultError::Envelope)
        } else {
            Err(VaultError::NotFor { name: address.name.clone(), urls: urls.join(", ") })
        };
        tracing::info!(
            target: AUDIT,
            {
                tenant.id = %tenant,
                project.id = address.scope(),
                secret.name = %address.name,
                secret.version = version,
                purpose,
                error.code = value.as_ref().err().map(|error| error.code().as_str()),
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

/// Checks that a key seals, and opens what it has sealed. Returns its canary.
async fn check_seal(key: &DeploymentKey) -> Result<SealedKey, EnvelopeError> {
    let canary = key.wrap(CANARY, &CANARY_PLACE).await?;
    check_canary(key, &canary).await?;
    Ok(canary)
}

async fn check_canary(key: &DeploymentKey, canary: &SealedKey) -> Result<(), EnvelopeError> {
    let text = key.unwrap(&canary.bytes, &CANARY_PLACE).await?;
    if text.as_slice() == CANARY { Ok(()) } else { Err(EnvelopeError::Damaged) }
}
