//! What the setups of a tenant's projects made on the sandbox machine, which knows them; the gateway names the tenant. And the environments that
//! repositories propose, about which admins decide.

use crate::{
    app::ground::gateway::Gateway,
    auth::principal::Principal,
    ground::{error::Error, invalid::Invalid, scope::Scope},
};
use chassis::telemetry::AUDIT;
use domain::ids::ProjectId;
use rpc::v1;
use store::people::environments::{NewDecision, ProposedEnvironment};

/// Lists the environments of the tenant, or of one project, newest build first.
///
/// # Errors
/// `scope_missing`, `project_not_found`, `sandbox_unavailable`, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    project: Option<&ProjectId>,
) -> Result<Vec<v1::Environment>, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    if let Some(project) = project {
        state.store.get_project(tenant, project).await?;
    }
    let request = v1::FindEnvironmentsRequest {
        tenant_id: tenant.to_string(),
        project_id: project.map(ToString::to_string).unwrap_or_default(),
    };
    Ok(state.sandbox.files().find_environments(request).await?.into_inner().environments)
}

/// Returns an environment with what its newest build printed.
///
/// # Errors
/// `scope_missing`, `argument_invalid`, `environment_unknown`, `sandbox_unavailable`.
pub(crate) async fn log(
    gateway: &Gateway,
    principal: &Principal,
    key: String,
) -> Result<v1::ReadEnvironmentLogResponse, Error> {
    let tenant_id = principal.tenant(Scope::Read)?.to_string();
    let request = v1::ReadEnvironmentLogRequest { tenant_id, key };
    Ok(gateway.state.sandbox.files().read_environment_log(request).await?.into_inner())
}

/// Removes an environment that no session uses, with its log.
///
/// # Errors
/// `scope_missing`, `argument_invalid`, `environment_unknown`, `environment_in_use`, `sandbox_unavailable`.
pub(crate) async fn remove(gateway: &Gateway, principal: &Principal, key: String) -> Result<(), Error> {
    let tenant_id = principal.tenant(Scope::Manage)?.to_string();
    let request = v1::DropEnvironmentRequest { tenant_id, key };
    gateway.state.sandbox.files().drop_environment(request).await?;
    Ok(())
}

/// Lists the environments that the repositories of a project have proposed, newest first.
///
/// # Errors
/// `scope_missing`, `project_not_found`, `store_unavailable`.
pub(crate) async fn list_proposed(
    gateway: &Gateway,
    principal: &Principal,
    project: &ProjectId,
) -> Result<Vec<ProposedEnvironment>, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    store.get_project(tenant, project).await?;
    Ok(store.list_proposed_environments(tenant, project).await?)
}

/// Allows or denies an environment that a repository proposed.
///
/// # Errors
/// `scope_missing`, `project_not_found`, `environment_not_proposed`, `answer_missing`, `store_unavailable`.
pub(crate) async fn decide(
    gateway: &Gateway,
    principal: &Principal,
    project: &ProjectId,
    digest: &str,
    verdict: v1::EnvironmentVerdict,
) -> Result<ProposedEnvironment, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Manage)?);
    store.get_project(tenant, project).await?;
    let is_allowed = match verdict {
        v1::EnvironmentVerdict::Allowed => true,
        v1::EnvironmentVerdict::Denied => false,
        v1::EnvironmentVerdict::Unspecified => {
            return Err(Invalid::AnswerMissing.because("the verdict must be allowed or denied"));
        }
    };
    let decision = NewDecision { project, digest, is_allowed, by: principal.name() };
    let decided = store.decide_environment(tenant, decision).await?;
    tracing::info!(
        target: AUDIT,
        {
            tenant.id = %tenant,
            project.id = %project,
            environment.digest = decided.digest,
            environment.is_allowed = is_allowed,
            actor = principal.name(),
        },
        "an environment was decided"
    );
    Ok(decided)
}
