//! Secrets of a tenant and its projects. The gateway hands values to the broker and keeps none; nothing here can read one.

use super::{
    gateway::Gateway,
    page::{List, PageRequest, is_text},
};
use crate::{
    auth::principal::Principal,
    errors::{error::Error, invalid::Invalid},
    scope::Scope,
    state::State,
};
use chassis::{secret::SecretBytes, telemetry::AUDIT};
use domain::{
    egress::secret_servers::SecretServers,
    ids::{ProjectId, TenantId, Timestamp},
    limits::SECRET_BYTES_MAX,
    secret::SecretAddress,
};
use rpc::v1;
use store::tenant::secrets::Secret;

/// What names a secret, as a client writes it.
#[derive(Debug)]
pub(crate) struct SecretTarget {
    /// `None`: a secret of the whole tenant.
    pub(crate) project: Option<ProjectId>,
    pub(crate) name: String,
}

impl SecretTarget {
    /// Finds the project first: a mistake in the name must not tell that somebody else's project exists.
    async fn check(self, state: &State, tenant: TenantId) -> Result<SecretAddress, Error> {
        if let Some(project) = &self.project {
            state.store.get_project(tenant, project).await?;
        }
        let name = self.name.parse();
        let name = name.map_err(|error: domain::secret::SecretNameError| {
            Invalid::SecretName.because(error.to_string())
        })?;
        Ok(SecretAddress { project: self.project, name })
    }
}

#[derive(Debug)]
pub(crate) struct SecretContent {
    pub(crate) value: SecretBytes,
    /// The beginnings of the URLs of the servers that may get it; empty: those of the earlier version.
    pub(crate) urls: Vec<String>,
}

/// Stores a secret, or its next version.
///
/// # Errors
/// `scope_missing`, `secret_name_invalid`, `secret_url_invalid`, `secret_empty`, `secret_too_large`, `secrets_too_many`, `project_not_found`, `broker_unavailable`,
/// `broker_failed`, `store_unavailable`.
// Continues in broker::grpc::server.
pub(crate) async fn set(
    gateway: &Gateway,
    principal: &Principal,
    target: SecretTarget,
    content: SecretContent,
) -> Result<Secret, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Manage)?);
    let address = target.check(state, tenant).await?;
    let SecretContent { value, urls } = content;
    let servers = SecretServers::parse(&urls);
    let servers = servers.map_err(|error| Invalid::SecretUrl.because(error.to_string()))?;
    let bytes = value.expose().len();
    if bytes == 0 {
        return Err(Invalid::SecretEmpty.because("the value of the secret is empty"));
    }
    if bytes > SECRET_BYTES_MAX {
        let message = format!("the value is {bytes} bytes, the limit is {SECRET_BYTES_MAX} bytes");
        return Err(Invalid::SecretTooLarge.because(message));
    }
    let actor = principal.actor();
    let request = v1::PutSecretRequest {
        tenant_id: tenant.to_string(),
        project_id: address.scope().to_owned(),
        name: address.name.to_string(),
        value: value.expose().to_vec(),
        actor: actor.name,
        actor_key: actor.key,
        urls: servers.urls(),
    };
    drop(value);
    let stored = state.broker.put_secret(request).await?;
    Ok(Secret {
        address,
        version: stored.version,
        created_at: Timestamp(stored.created_at_ms),
        created_by: principal.name().to_owned(),
        last_used_at: None,
        urls: stored.urls,
    })
}

/// Lists the secrets of the tenant and its projects, or only those of one project.
///
/// # Errors
/// `scope_missing`, `project_not_found`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    project: Option<&ProjectId>,
    page: PageRequest,
) -> Result<List<Secret>, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    let page = page.check(|cursor| is_text(cursor) && cursor.contains('/'))?;
    if let Some(project) = project {
        store.get_project(tenant, project).await?;
    }
    let secrets = store.list_secrets(tenant, project, &page).await?;
    Ok(List::of(&page, secrets, Secret::cursor))
}

/// Deletes a secret. It needs no broker.
///
/// # Errors
/// `scope_missing`, `secret_name_invalid`, `project_not_found`, `secret_not_found`, `store_unavailable`.
pub(crate) async fn delete(
    gateway: &Gateway,
    principal: &Principal,
    target: SecretTarget,
) -> Result<(), Error> {
    let tenant = principal.tenant(Scope::Manage)?;
    let address = target.check(&gateway.state, tenant).await?;
    let version = principal.acting(&gateway.state.store).delete_secret(tenant, &address).await?;
    tracing::info!(
        target: AUDIT,
        {
            tenant.id = %tenant,
            project.id = address.scope(),
            secret.name = %address.name,
            secret.version = version,
            actor = principal.name(),
        },
        "a secret was deleted"
    );
    Ok(())
}
