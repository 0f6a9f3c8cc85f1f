//! The credentials of the App at a forge, sealed as a secret of no tenant.

use super::{
    deployment_key::DeploymentKey,
    envelope,
    place::SecretPlace,
    vault::{Vault, VaultError},
};
use chassis::secret::SecretBytes;
use store::broker::{keys::SealedKey, secrets::SealedSecret};

/// Where they belong. No secret of a tenant has this place.
fn place(version: u64) -> SecretPlace<'static> {
    SecretPlace { tenant: "", project: "", name: "forge_app", version }
}

impl Vault {
    /// Seals the credentials for a version of the App.
    ///
    /// # Errors
    /// `OtherKey`, `Envelope`, `Store`.
    pub(crate) async fn seal_app(
        &self,
        value: &SecretBytes,
        version: u64,
    ) -> Result<SealedSecret, VaultError> {
        let noted = self.store.find_keys().await?;
        let key = match &noted {
            Some(noted) => self.keys.find(&noted.key_id).ok_or_else(|| self.missing_key(&noted.key_id))?,
            None => self.keys.newest(),
        };
        Ok(envelope::seal(value, &place(version), key).await?)
    }

    /// Opens the credentials of a version of the App.
    ///
    /// # Errors
    /// `Envelope`.
    pub(crate) async fn open_app(
        &self,
        sealed: &SealedSecret,
        version: u64,
    ) -> Result<SecretBytes, VaultError> {
        Ok(envelope::open(sealed, &place(version), &self.keys).await?)
    }

    /// Seals the key of the credentials with another key of the deployment, if an older one has sealed it. Returns whether it did.
    ///
    /// # Errors
    /// `Envelope`, `Store`.
    pub(super) async fn reseal_app(&self, newest: &DeploymentKey) -> Result<bool, VaultError> {
        let Some(app) = self.store.find_forge_app().await? else { return Ok(false) };
        let SealedSecret { key_id, sealed_key, .. } = app.sealed;
        if key_id == newest.id() {
            return Ok(false);
        }
        let older = SealedKey { key_id, bytes: sealed_key };
        let key = envelope::reseal(&older, &place(app.version), &self.keys, newest).await?;
        Ok(self.store.replace_forge_app_key(app.version, &older.key_id, &key).await?)
    }
}
