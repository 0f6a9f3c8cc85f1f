//! What the first turn of a session needs and sessions share, brought before there is a prompt: what the commit of the repository has for agents, its mirror, and the
//! layers of the image. Only the loop of a session opens its files, so this touches no file, door or record of a session: it reads a private repository through a door
//! whose id no session has. It runs no script: a setup or an install would work for minutes, with secrets, for a prompt that may never come.

use super::{
    above::SettingsAbove,
    egress::{CloneAccess, Egress},
    image::WorkspaceImage,
    progress::OpeningProgress,
    proposal,
    reading::{self, CommitQuestion, CommitReadings},
};
use crate::process::{deps::Deps, sandbox::Identity, store_timeout::with_store_timeout};
use domain::{
    egress::git::find_address,
    ids::{ProjectId, SessionId, TenantId},
    session::{Class, Origin, Phase, Source},
};
use rpc::v1::{self, open_workspace_request::Part};
use settings::Settings;
use std::{
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};
use store::{
    error::Error,
    people::environments::EnvironmentQuery,
    rows::session_row::{Session, SessionWithSettings},
};
use tonic::Status;

/// Longest warm-up: somewhat longer than a clone may take. A longer one is ended.
const WARM_UP_TIME_MAX: Duration = Duration::from_secs(900);
/// The epoch of the door: it has no loop.
const NO_EPOCH: u64 = 0;

/// What can be brought for a session.
pub(crate) struct WarmUp {
    deps: Arc<Deps>,
    /// Names the door, and nothing else.
    identity: Identity,
    project: ProjectId,
    settings: Arc<Settings>,
    source: Source,
}

impl WarmUp {
    /// Finds what can be brought for a session. `None`: it has files, has been prompted, waits for no person, or needs nothing that can be shared.
    ///
    /// The environment is the one that was allowed last in the project: which one the repository proposes is known only from its clone. A session that tries
    /// what its repository proposes gets none ahead.
    ///
    /// # Errors
    /// `NotFound`; `Unreadable`, also for settings of a newer version; `Db`.
    pub(crate) async fn find(
        deps: &Arc<Deps>,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Option<Self>, Error> {
        let read = deps.store.get_session_with_settings(tenant, session);
        let SessionWithSettings { session: stored, settings: above } = with_store_timeout(read).await?;
        if !awaits_first_prompt(&stored) {
            return Ok(None);
        }
        let project = stored.info.project_id;
        let above = SettingsAbove::of(&deps.platform, &above)
            .map_err(|problems| Error::Unreadable { what: "settings", source: Box::new(problems) })?;
        let settings = match &stored.source.origin {
            Origin::Empty => above.settings,
            Origin::GitUrl(_) | Origin::Bundle(_) => {
                let query = EnvironmentQuery { project: &project, session, document: "", repository: None };
                let choice = with_store_timeout(deps.store.find_environment(tenant, query)).await?;
                let environment = choice.allowed.as_ref().and_then(proposal::read);
                above.with(environment).unwrap_or(above.settings)
            }
        };
        let source = stored.source;
        if !matches!(source.origin, Origin::GitUrl(_)) && settings.image.is_none() {
            return Ok(None);
        }
        let identity = door(tenant, &project);
        Ok(Some(Self { deps: Arc::clone(deps), identity, project, settings, source }))
    }

    /// The project of the session.
    pub(crate) fn project(&self) -> &ProjectId {
        &self.project
    }

    /// Brings it.
    ///
    /// # Errors
    /// Those of the broker and of the sandbox. The first turn of the session meets and shows those that last.
    ///
    /// Dropped midway: the clone ends, and a layer is on the machine whole or not at all.
    pub(crate) async fn bring(&self) -> Result<(), Status> {
        let image = WorkspaceImage {
            deps: &self.deps,
            identity: &self.identity,
            project: &self.project,
            setting: self.settings.image.as_ref(),
            // No subscriber waits for a warm-up, so the worker sends no notices.
            progress: &OpeningProgress::default(),
        };
        let both = async { tokio::join!(self.read_source(), image.bring_ahead()) };
        match tokio::time::timeout(WARM_UP_TIME_MAX, both).await {
            Ok((mirror, layers)) => mirror.and(layers),
            Err(_) => Err(Status::deadline_exceeded("it took too long")),
        }
    }

    /// Has the machine read what the commit of the repository has for agents, which also fills the mirror.
    async fn read_source(&self) -> Result<(), Status> {
        let Self { deps, identity, project, source, settings, .. } = self;
        let Origin::GitUrl(url) = &source.origin else { return Ok(()) };
        let Some(readings) = CommitReadings::of(deps, identity.tenant, NO_EPOCH, project, source) else {
            return Ok(());
        };
        let git = &settings.git_credentials;
        let ask = async |request| {
            let mut git_prefixes = vec![];
            let egress = Egress::new(Arc::clone(deps), identity.clone(), project.clone());
            let has_door = find_address(git.keys(), url).is_some();
            if has_door {
                // The call of the sandbox below removes the door. If it does not arrive, the next warm-up of the project does, or the broker after a week.
                egress.open_for_clone(CloneAccess { git, url }).await?;
                git_prefixes = git.keys().map(ToString::to_string).collect();
            }
            let header = v1::WorkspaceHeader {
                fence: identity.fence(),
                project_id: project.to_string(),
                git_prefixes,
                ..v1::WorkspaceHeader::from(source)
            };
            let header = v1::OpenWorkspaceRequest { part: Some(Part::Header(header)) };
            let request = v1::ReadSourceRequest { ahead: true, ..request };
            let messages = reading::messages(request, tokio_stream::once(header));
            // Not repeated: a machine that is busy or away has no time for this.
            let read = deps.sandbox.client().read_source(messages).await;
            if has_door && read.is_err() {
                // A call that was refused early has removed nothing.
                egress.close_to_repositories().await;
            }
            read.map(tonic::Response::into_inner)
        };
        // The first question of a turn: what the configuration itself names is known only from the answer.
        let question = CommitQuestion::Guidance(&[]);
        let known = readings.find(question).await?;
        if source.is_fixed() && known.as_ref().is_some_and(|known| known.reading.is_some()) {
            return Ok(());
        }
        readings.ask(known, question, ask).await.map(drop)
    }
}

/// Whether a person is about to send the first prompt of a session.
fn awaits_first_prompt(stored: &Session) -> bool {
    stored.class == Class::Interactive
        && stored.phase == Phase::Idle
        && !stored.has_workspace
        && stored.workspace_id == stored.info.id
}

/// Names the door of the warm-ups of a project. It is the same one for all of them, so that an interrupted one leaves no further door.
fn door(tenant: TenantId, project: &ProjectId) -> Identity {
    let session = SessionId::of_warm_ups(project);
    Identity {
        tenant,
        workspace: session.clone(),
        session,
        opening: Arc::new(AtomicU32::new(0)),
        epoch: NO_EPOCH,
    }
}
