//! Settings of tenants and projects, and the effective settings of a session.

use super::gateway::Gateway;
use crate::{
    app::projects::manage::{refresh_all_clients, refresh_clients},
    auth::principal::Principal,
    backends::{files::FileReader, sandbox::fence},
    errors::{error::Error, invalid::Invalid, refusal::Refusal},
    scope::Scope,
    state::State,
};
use domain::{
    ids::{ProjectId, SessionId, TenantId},
    policy::level::Level,
    session::{Origin, files::SourceFiles},
};
use prost::Message as _;
use rpc::v1::{self, ErrorCode};
use settings::{
    Settings,
    document::Document,
    merge::merge,
    proposal::{self, Proposal},
    repository::{self, RepositorySettings, UnclearRestriction},
    standing,
};
use std::time::Duration;
use store::{
    Page,
    people::environments::EnvironmentQuery,
    rows::session_row::Session,
    session::sessions::Filter,
    tenant::{readings::PeoplesSource, settings::StoredSettings, worktrees::SessionArea},
};

/// Time in which the sandbox must give the settings of a repository: a client that starts waits for them.
const REPOSITORY_WAIT: Duration = Duration::from_secs(2);
/// Newest sessions of a directory that are examined for open files.
const OPEN_EXAMINED_MAX: u32 = 20;
/// Sessions of a directory that are asked for the settings of their repository, one after the other.
const KNOWN_EXAMINED_MAX: usize = 4;

/// Returns the stored settings of a project, or of the tenant.
///
/// # Errors
/// `project_not_found`, `store_unavailable`.
pub(crate) async fn get(
    gateway: &Gateway,
    principal: &Principal,
    project: Option<&ProjectId>,
) -> Result<Option<StoredSettings>, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    if let Some(project) = project {
        store.get_project(tenant, project).await?;
    }
    let level = level(project);
    let stored = store.list_settings(tenant, project).await?;
    Ok(stored.into_iter().find(|stored| stored.level == level))
}

/// Stores the settings of a project, or of the tenant; an empty document deletes them. Tells clients to read again what depends
/// on them.
///
/// # Errors
/// `scope_missing`, `project_not_found`, `settings_invalid`, `store_unavailable`.
pub(crate) async fn set(
    gateway: &Gateway,
    principal: &Principal,
    project: Option<&ProjectId>,
    document: &str,
) -> Result<Option<StoredSettings>, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Manage)?);
    let project = match project {
        Some(project) => Some(store.get_project(tenant, project).await?),
        None => None,
    };
    let id = project.as_ref().map(|project| &project.id);
    let stored = if document.trim().is_empty() {
        principal.acting(store).delete_settings(tenant, id).await?;
        None
    } else {
        standing::stored(level(id), document)
            .map_err(|problems| Invalid::Settings.because(problems.to_string()))?;
        Some(principal.acting(store).put_settings(tenant, id, document, principal.name()).await?)
    };
    match &project {
        Some(project) => refresh_clients(gateway, principal, &project.name).await?,
        None => refresh_all_clients(gateway, principal)?,
    }
    Ok(stored)
}

/// Explains the settings of a session: each value with its origin, or why the repository's settings are refused.
///
/// # Errors
/// `session_not_found`, `settings_unreadable`, `requests_too_many`, `sandbox_unavailable`, `store_unavailable`.
pub(crate) async fn explain(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
) -> Result<Result<RepositorySettings, UnclearRestriction>, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let session = state.store.get_session(tenant, session).await?;
    let stored = state.store.list_settings_of(tenant, &session.info.id).await?;
    // The gateway checks documents before it stores them, so a gateway of another version stored these.
    let above =
        state.settings_above(&stored).map_err(|problems| Error::SettingsUnreadable(problems.to_string()))?;
    let reader = state.file_reads.take(tenant).await?;
    let files = find_repository_files(state, &reader, tenant, &session).await?.unwrap_or_default();
    drop(reader);
    let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let environment =
        allowed_environment(state, tenant, SessionFiles { session: &session, above: &above, files: &files })
            .await?;
    let above: Vec<_> = above.into_iter().chain(environment).collect();
    Ok(repository::configure(&above, &files))
}

/// Returns the settings of a project before a repository adds its own. Unreadable settings count as empty here: they end a turn with
/// their own error.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn merged(
    gateway: &Gateway,
    principal: &Principal,
    project: Option<&ProjectId>,
) -> Result<Settings, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let stored = state.store.list_settings(tenant, project).await?;
    let merged = state.settings_above(&stored).and_then(|documents| merge(&documents));
    Ok(merged.map(|merged| merged.settings).unwrap_or_default())
}

/// Returns the settings of a project with those of its repository, as far as they are known: of the newest session whose files are open, else of the commit
/// that was read last for one of the newest sessions. A repository that cannot be read in time, or whose restrictions have a mistake, adds nothing.
///
/// # Errors
/// `requests_too_many`, `store_unavailable`.
pub(crate) async fn with_repository(
    gateway: &Gateway,
    principal: &Principal,
    project: Option<&ProjectId>,
) -> Result<Settings, Error> {
    let above = merged(gateway, principal, project).await?;
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let Some(project) = project else { return Ok(above) };
    let mut sessions = list_newest(state, tenant, &project.clone().into()).await?;
    // First those whose files are open, in their order.
    sessions.sort_by_key(|session| !session.has_workspace);
    sessions.retain(|session| session.source.origin != Origin::Empty);
    sessions.truncate(KNOWN_EXAMINED_MAX);
    let reader = state.file_reads.take(tenant).await?;
    for session in &sessions {
        if let Some(settings) = find_session_settings(state, &reader, tenant, session).await? {
            return Ok(settings);
        }
    }
    Ok(above)
}

/// Finds the settings with which a session works. `None`: its files are not open and nothing was read of its commit, the sandbox does not give the files of
/// its repository in time, or a restriction in them has a mistake.
///
/// # Errors
/// `store_unavailable`.
pub(in crate::app) async fn find_session_settings(
    state: &State,
    reader: &FileReader,
    tenant: TenantId,
    session: &Session,
) -> Result<Option<Settings>, Error> {
    let files =
        tokio::time::timeout(REPOSITORY_WAIT, find_repository_files(state, reader, tenant, session)).await;
    let files = match files {
        Ok(Ok(Some(files))) => files,
        Ok(Ok(None)) | Err(_) => return Ok(None),
        Ok(Err(error)) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the settings of a repository were not read"
            );
            return Ok(None);
        }
    };
    let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let stored = state.store.list_settings_of(tenant, &session.info.id).await?;
    let Ok(documents) = state.settings_above(&stored) else { return Ok(None) };
    let environment =
        allowed_environment(state, tenant, SessionFiles { session, above: &documents, files: &files })
            .await?;
    let documents: Vec<_> = documents.into_iter().chain(environment).collect();
    Ok(repository::configure(&documents, &files).ok().map(|configured| configured.merged.settings))
}

/// The environment with which a session works whose repository has these `files`: it proposes one, and an admin has allowed that one or another one of
/// the project, or the session tries it.
///
/// # Errors
/// `store_unavailable`.
pub(in crate::app) async fn allowed_environment(
    state: &State,
    tenant: TenantId,
    SessionFiles { session, above, files }: SessionFiles<'_>,
) -> Result<Option<Document>, Error> {
    // A mistake is told with those of the other files.
    let Ok(Some(proposal)) = proposal::find(files) else { return Ok(None) };
    let repository = shared_repository(session, &proposal, above);
    let query = query(session, &proposal.document, repository.as_deref());
    let chosen = state.store.find_environment(tenant, query).await?;
    Ok(match chosen.allowed {
        // The file of this repository says the same, so its lines are known.
        Some(allowed) if allowed.document == proposal.document => Some(proposal.located),
        Some(allowed) => standing::allowed(&allowed.file, &allowed.document).ok(),
        None => None,
    })
}

/// The question for the environment of the files of a session whose repository proposes `document`.
pub(in crate::app) fn query<'a>(
    session: &'a Session,
    document: &'a str,
    repository: Option<&'a str>,
) -> EnvironmentQuery<'a> {
    let (project, session) = (&session.info.project_id, &session.workspace_id);
    EnvironmentQuery { project, session, document, repository }
}

/// [`Proposal::shared_repository`] for the files of a session. `None` also if the settings above them have a mistake.
pub(in crate::app) fn shared_repository(
    session: &Session,
    proposal: &Proposal,
    above: &[Document],
) -> Option<String> {
    proposal.shared_repository(&session.source, &merge(above).ok()?.settings)
}

/// The files of a session, as far as they describe its environment.
#[derive(Clone, Copy)]
pub(in crate::app) struct SessionFiles<'a> {
    pub(in crate::app) session: &'a Session,
    /// The settings above its repository.
    pub(in crate::app) above: &'a [Document],
    /// Each with its path.
    pub(in crate::app) files: &'a [(&'a str, &'a str)],
}

/// The newest root session of a directory whose files are open; only the newest few are examined.
pub(in crate::app) async fn newest_open(
    state: &State,
    tenant: TenantId,
    area: &SessionArea,
) -> Result<Option<Session>, Error> {
    let newest = list_newest(state, tenant, area).await?;
    Ok(newest.into_iter().find(|session| session.has_workspace))
}

/// The newest few root sessions of a directory.
async fn list_newest(state: &State, tenant: TenantId, area: &SessionArea) -> Result<Vec<Session>, Error> {
    let filter = Filter { only_roots: true, ..Filter::from(area.clone()) };
    let page = Page { limit: OPEN_EXAMINED_MAX, cursor: None };
    Ok(state.store.list_sessions(tenant, &filter, &page).await?)
}

/// The settings files of the commit that a session started from, or starts from if it has no files yet. `None`: nothing was read of it, or its files were lost.
pub(in crate::app) async fn find_repository_files(
    state: &State,
    reader: &FileReader,
    tenant: TenantId,
    session: &Session,
) -> Result<Option<Vec<v1::GuidanceFile>>, Error> {
    if !session.has_workspace {
        return find_commit_files(state, tenant, session).await;
    }
    let request = v1::ReadGuidanceRequest { fence: Some(fence(tenant, session)), ..Default::default() };
    match reader.read_guidance(request).await.map_err(Refusal::from) {
        Ok(guidance) => Ok(Some(guidance.configuration)),
        Err(refusal) if refusal.code == Some(ErrorCode::WorkspaceMissing) => Ok(None),
        Err(refusal) => Err(Error::Sandbox(refusal)),
    }
}

/// The settings files of the commit that the source of a session named when it was last read.
async fn find_commit_files(
    state: &State,
    tenant: TenantId,
    session: &Session,
) -> Result<Option<Vec<v1::GuidanceFile>>, Error> {
    let SourceFiles::People(files) = session.source.files() else { return Ok(None) };
    let of = PeoplesSource { project: &session.info.project_id, source: &session.source, files };
    let known = state.store.find_source_commit(tenant, of, &[]).await?;
    let reading = known.and_then(|known| known.reading);
    let reading = reading.and_then(|bytes| v1::ReadSourceResponse::decode(bytes.as_slice()).ok());
    Ok(reading.and_then(|reading| reading.guidance).map(|guidance| guidance.configuration))
}

fn level(project: Option<&ProjectId>) -> Level {
    project.map_or(Level::Tenant, |_| Level::Project)
}
