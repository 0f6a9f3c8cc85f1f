//! Seals the keys of values again after the operator replaced the key of the deployment, one after another in the background. The values stay as they are. Each is
//! a statement of its own, and both keys open until it has ended: a broker that is killed loses nothing, and the next one goes on. One broker of a deployment does so at a
//! time. Two would lose nothing either, because a statement replaces only the key that its broker has read, but would do the same work.

use super::{
    deployment_key::DeploymentKey,
    envelope,
    error::EnvelopeError,
    place::SecretPlace,
    vault::{Vault, VaultError},
};
use chassis::{Service, telemetry::AUDIT};
use domain::ids::TenantId;
use std::{sync::Arc, time::Duration};
use store::Page;

/// Tenants of one page. Further ones come with the next.
const TENANTS_PAGE_MAX: u32 = 100;
/// Secrets of one page. Further ones come with the next.
const SECRETS_PAGE_MAX: u32 = 100;
/// Secrets of one pass that do not open and that the log names. The number at the end counts all.
const NAMED_MAX: u32 = 20;
/// Time until the next pass tries what is left.
const PAUSE: Duration = Duration::from_secs(60);

/// How far a pass over all secrets came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResealProgress {
    /// Secrets whose keys this pass sealed with the newest key.
    pub resealed: u32,
    /// Secrets that do not open, or that a key service does not decrypt, and so keep their older key.
    pub left: u32,
    /// Whether no secret needs an older key any more.
    pub is_done: bool,
}

/// Runs passes until no secret needs an older key, or until the service stops.
pub async fn run(vault: Arc<Vault>, service: Service) {
    while !service.shutdown.is_cancelled() {
        match service.shutdown.run_until_cancelled(claimed_pass(&vault)).await {
            Some(Ok(Some(ResealProgress { is_done: true, .. }))) | None => return,
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "secrets cannot be sealed again; retrying in a minute");
            }
        }
        service.shutdown.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
    }
}

/// Runs a pass, unless another broker runs one. `None`: another one does.
///
/// # Errors
/// Those of [`pass`].
///
/// Dropped midway: as [`pass`], and another broker may begin.
pub async fn claimed_pass(vault: &Vault) -> Result<Option<ResealProgress>, VaultError> {
    let Some(_claim) = vault.store.claim_reseal().await? else {
        tracing::info!("another broker seals secrets again; looking again in a minute");
        return Ok(None);
    };
    pass(vault).await.map(Some)
}

/// Seals the keys of all values with the key that the deployment seals with, and then forgets the older keys.
///
/// # Errors
/// `OtherKey`; `Store`; `Envelope` if a key service is away or does not let the broker use a key: the rest is left for the next pass.
///
/// Dropped midway: each secret opens with its earlier or its newest key.
pub async fn pass(vault: &Vault) -> Result<ResealProgress, VaultError> {
    let mut progress = ResealProgress { is_done: true, ..ResealProgress::default() };
    let gauge = metrics::gauge!("flotilla_broker_secrets_left");
    let Some(noted) = vault.store.find_keys().await?.filter(|noted| !noted.older_key_ids.is_empty()) else {
        gauge.set(0.0);
        return Ok(progress);
    };
    let newest = vault.keys.find(&noted.key_id).ok_or_else(|| vault.missing_key(&noted.key_id))?;
    let older = noted.older_key_ids.join(" ");
    tracing::info!("secrets of the keys {older} are sealed with the key {}", noted.key_id);
    let mut after = None;
    loop {
        let tenants = vault.store.list_secret_tenants(after, TENANTS_PAGE_MAX).await?;
        let Some(last) = tenants.last() else { break };
        after = Some(*last);
        for tenant in tenants {
            reseal_tenant(vault, tenant, newest, &mut progress).await?;
        }
        let ResealProgress { resealed, left, .. } = progress;
        tracing::info!(resealed, left, "{resealed} secrets are sealed again, {left} do not open");
    }
    match vault.reseal_app(newest).await {
        Ok(is_resealed) => progress.resealed += u32::from(is_resealed),
        Err(VaultError::Envelope(
            error @ (EnvelopeError::Damaged | EnvelopeError::OtherKey | EnvelopeError::KmsSecretRefused(_)),
        )) => {
            progress.left += 1;
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "the credentials of the App at the forge cannot be sealed again; set them again"
            );
        }
        Err(error) => return Err(error),
    }
    gauge.set(f64::from(progress.left));
    progress.is_done = progress.left == 0 && vault.store.forget_older_keys(&noted).await?;
    let ResealProgress { resealed, left, is_done } = progress;
    if is_done {
        tracing::info!(
            target: AUDIT,
            { resealed, key.id = noted.key_id },
            "no secret needs the keys {older} any more: their files may go"
        );
    } else if left > 0 {
        tracing::warn!(left, "{left} secrets still need the keys {older}; set them again, or delete them");
    }
    Ok(progress)
}

async fn reseal_tenant(
    vault: &Vault,
    tenant: TenantId,
    newest: &DeploymentKey,
    progress: &mut ResealProgress,
) -> Result<(), VaultError> {
    let id = tenant.to_string();
    let mut page = Page { limit: SECRETS_PAGE_MAX, cursor: None };
    loop {
        let secrets = vault.store.list_older_secrets(tenant, newest.id(), &page).await?;
        let Some(last) = secrets.last() else { return Ok(()) };
        page.cursor = Some(last.cursor());
        for secret in &secrets {
            let place = SecretPlace::of(&id, &secret.address, secret.version);
            match envelope::reseal(&secret.key, &place, &vault.keys, newest).await {
                Ok(key) => {
                    // Otherwise the secret has changed meanwhile, or another key seals now. The record of keys shows the latter.
                    let is_replaced = vault.store.replace_key(tenant, secret, &key).await?;
                    progress.resealed += u32::from(is_replaced);
                }
                Err(
                    error @ (EnvelopeError::Damaged
                    | EnvelopeError::OtherKey
                    | EnvelopeError::KmsSecretRefused(_)),
                ) => {
                    progress.left += 1;
                    if progress.left <= NAMED_MAX {
                        let (project, name) = (secret.address.scope(), &secret.address.name);
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            tenant.id = %tenant,
                            project.id = project,
                            secret.name = %name,
                            error.code = error.code().as_str(),
                            "the broker cannot seal a secret again"
                        );
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
