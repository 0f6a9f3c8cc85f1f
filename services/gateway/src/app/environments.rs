//! What the setups of a tenant's projects made on the sandbox machine, which knows them; the gateway names the tenant. And the environments that
//! repositories propose, about which admins decide.

use super::gateway::Gateway;
use crate::{
    app::settings,
    auth::principal::Principal,
    errors::{error::Error, invalid::Invalid},
    scope::Scope,
};
use ::settings::{Settings, merge::merge, proposal, standing};
use chassis::telemetry::AUDIT;
use domain::{
    ids::{ProjectId, SessionId},
    secret::SecretName,
};
use rpc::v1;
use std::collections::BTreeSet;
use store::people::environments::{NewDecision, ProposedEnvironment};

/// Digits of a digest that name an environment of another project: fewer would name several.
const DIGEST_DIGITS_MIN: usize = 8;

/// An environment that a repository proposes, with what else an admin must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) environment: ProposedEnvironment,
    /// The secrets that it gives to setup and install, and with which people push.
    pub(crate) push_secrets: Vec<String>,
}

impl Proposal {
    /// `settings` are those of the project.
    fn new(environment: ProposedEnvironment, settings: &Settings) -> Self {
        let push_secrets = push_secrets(&environment, settings);
        Self { environment, push_secrets }
    }
}

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
    Ok(state.sandbox.files().find_environments(request).await?.environments)
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
    Ok(gateway.state.sandbox.files().read_environment_log(request).await?)
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

/// Lists the environments that the repositories of a project have proposed, newest first: those whose digest begins so. If there are none, those that were proposed
/// to other projects of the tenant; they wait in this one.
///
/// # Errors
/// `scope_missing`, `project_not_found`, `store_unavailable`.
pub(crate) async fn list_proposed(
    gateway: &Gateway,
    principal: &Principal,
    project: &ProjectId,
    beginning: &str,
) -> Result<Vec<Proposal>, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    store.get_project(tenant, project).await?;
    let settings = settings::merged(gateway, principal, Some(project)).await?;
    let mut proposed = store.list_proposed_environments(tenant, project).await?;
    proposed.retain(|environment| environment.digest.starts_with(beginning));
    if proposed.is_empty() && beginning.len() >= DIGEST_DIGITS_MIN {
        proposed = store.find_proposed_environments(tenant, beginning).await?;
    }
    Ok(proposed.into_iter().map(|environment| Proposal::new(environment, &settings)).collect())
}

/// Finds the environment that the repository of a session proposes, as its files were opened or its commit was read. `None`: it proposes none.
///
/// # Errors
/// `scope_missing`, `session_not_found`, `workspace_missing`, `settings_invalid`: its file has a mistake; `requests_too_many`, `sandbox_unavailable`,
/// `store_unavailable`.
pub(crate) async fn find_of_session(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
) -> Result<Option<Proposal>, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let session = state.store.get_session(tenant, session).await?;
    let reader = state.file_reads.take(tenant).await?;
    let files = settings::find_repository_files(state, &reader, tenant, &session).await?;
    drop(reader);
    let files = files.ok_or_else(|| {
        Invalid::WorkspaceMissing
            .because("the files of the session are not open, and its commit has not been read")
    })?;
    let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let found = proposal::find(&files).map_err(|problems| Invalid::Settings.because(problems.to_string()))?;
    let Some(proposal) = found else { return Ok(None) };
    let stored = state.store.list_settings_of(tenant, &session.info.id).await?;
    let above = state.settings_above(&stored).unwrap_or_default();
    let repository = settings::shared_repository(&session, &proposal, &above);
    let query = settings::query(&session, &proposal.document, repository.as_deref());
    let chosen = state.store.find_environment(tenant, query).await?;
    // A session that tries one uses it whatever was decided.
    let decided = chosen.allowed.filter(|allowed| allowed.digest == chosen.digest);
    let settings = settings::merged(gateway, principal, Some(&session.info.project_id)).await?;
    Ok(decided.or(chosen.own).map(|environment| Proposal::new(environment, &settings)))
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
) -> Result<Proposal, Error> {
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
    let decided = principal.acting(store).decide_environment(tenant, decision).await?;
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
    let settings = settings::merged(gateway, principal, Some(project)).await?;
    Ok(Proposal::new(decided, &settings))
}

/// The secrets that an environment gives to its scripts although the settings push with them.
fn push_secrets(environment: &ProposedEnvironment, settings: &Settings) -> Vec<String> {
    let document = standing::allowed(&environment.file, &environment.document);
    // A version that no longer reads this environment does not use it either.
    let Ok(own) = document.and_then(|document| merge(&[document])) else { return vec![] };
    let own: BTreeSet<&SecretName> = own.settings.secrets.values().collect();
    let pushing: BTreeSet<&SecretName> = settings.git_push.values().map(|push| &push.credential).collect();
    own.intersection(&pushing).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::{ids::Timestamp, policy::level::Level};

    #[test]
    fn a_secret_that_pushes_is_told_when_an_environment_wants_it() {
        let text = r#"{"environment": {"git": {"push": {"https://git.acme.dev/a/": {"credential": "PUSH_TOKEN"}},
            "credentials": {"https://git.acme.dev/": "READ_TOKEN"}}}}"#;
        let settings = merge(&[standing::stored(Level::Project, text).unwrap()]).unwrap().settings;
        let environment = |secrets: &str| ProposedEnvironment {
            digest: "0".repeat(64),
            file: ".flotilla/config.yaml".to_owned(),
            document: format!(r#"{{"environment":{{"install":"npm ci","secrets":{secrets}}}}}"#),
            unused: vec![],
            session: "ses_1".parse().unwrap(),
            proposed_at: Timestamp(0),
            decision: None,
        };
        for (secrets, want) in [
            (r#"{"A":"PUSH_TOKEN","B":"NPM_TOKEN","C":"PUSH_TOKEN"}"#, &["PUSH_TOKEN"][..]),
            (r#"{"A":"READ_TOKEN"}"#, &[]),
            ("7", &[]),
        ] {
            assert_eq!(push_secrets(&environment(secrets), &settings), want, "{secrets}");
            assert!(push_secrets(&environment(secrets), &Settings::default()).is_empty(), "{secrets}");
        }
    }
}
