//! What the opening of a workspace works with, and what it leaves for the session.

use super::install;
use crate::{
    process::{deps::Deps, sandbox::Identity},
    repository::{
        above::SettingsAbove, egress::Egress, progress::OpeningProgress, proposal::EnvironmentNotice,
        stored::from_store,
    },
};
use domain::{
    ids::ProjectId,
    session::{Origin, Source},
};
use rpc::v1::{self, open_workspace_request::Part};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Pieces of a bundle that are read ahead of the sandbox, each with 1 MiB at most: 4 MiB for one opening.
const PIECES_AHEAD: usize = 4;

/// What a workspace begins with.
#[derive(Debug, Clone)]
pub(crate) struct WorkspaceOrigin {
    pub(crate) project: ProjectId,
    pub(crate) source: Source,
    /// Whether the files were opened before this loop began.
    pub(crate) was_opened: bool,
    /// The settings above its repository.
    pub(crate) above: SettingsAbove,
}

/// A workspace that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenWorkspace {
    /// The commit that changes are compared with.
    pub(crate) base_commit: String,
    /// The branch that was checked out then.
    pub(crate) branch: Option<String>,
}

impl OpenWorkspace {
    pub(super) fn at(base_commit: String, branch: String) -> Self {
        Self { base_commit, branch: Some(branch).filter(|branch| !branch.is_empty()) }
    }
}

/// The means of an opening. Clones share the state.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) deps: Arc<Deps>,
    pub(super) identity: Identity,
    pub(super) origin: WorkspaceOrigin,
    pub(super) egress: Egress,
    pub(super) progress: OpeningProgress,
    /// What people have not been told yet about the environment with which this loop opened the files, or tried to.
    notice: Arc<Mutex<Option<EnvironmentNotice>>>,
    /// Why this loop opened a copy without what is installed in its origin.
    missing_install: Arc<OnceLock<EnvironmentNotice>>,
}

impl Means {
    pub(super) fn new(deps: Arc<Deps>, identity: Identity, origin: WorkspaceOrigin) -> Self {
        let egress = Egress::new(Arc::clone(&deps), identity.clone(), origin.project.clone());
        let progress = OpeningProgress::default();
        Self {
            deps,
            identity,
            origin,
            egress,
            progress,
            notice: Arc::default(),
            missing_install: Arc::default(),
        }
    }

    /// Whether the session starts from a repository.
    pub(super) fn has_source(&self) -> bool {
        self.origin.source.origin != Origin::Empty
    }

    /// Notes what people must know about the environment.
    pub(super) fn set_notice(&self, notice: Option<EnvironmentNotice>) {
        *self.notice.lock().unwrap_or_else(PoisonError::into_inner) = notice;
    }

    pub(super) fn take_notice(&self) -> Option<EnvironmentNotice> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why this loop opened a copy without what is installed in its origin.
    pub(super) fn missing_install(&self) -> Option<&EnvironmentNotice> {
        self.missing_install.get()
    }

    /// Goes on without what is installed in the origin of a copy, and notes that for people and the model.
    pub(super) fn leave_install_out(&self) {
        let missing = self.missing_install.get_or_init(install::not_copied).clone();
        self.set_notice(EnvironmentNotice::joined(self.take_notice(), Some(missing)));
    }

    /// Asks the sandbox whether it has the files.
    pub(super) async fn find(&self) -> Result<Option<OpenWorkspace>, Status> {
        let request = v1::GetWorkspaceRequest { fence: self.identity.fence() };
        let found = self.deps.sandbox.call(|mut client| {
            let request = request.clone();
            async move { client.get_workspace(request).await }
        });
        let found = found.await?;
        Ok(found.exists.then(|| OpenWorkspace::at(found.base_commit, found.branch)))
    }

    /// Records that the files exist, before any call can change them.
    pub(super) async fn note_opened(&self) -> Result<(), Status> {
        from_store(|| self.deps.store.note_workspace(self.identity.tenant, &self.identity.workspace)).await
    }

    /// Whether a loop recorded that the files exist. Another loop of the same tree may have done so since this loop began.
    pub(super) async fn is_recorded(&self) -> Result<bool, Status> {
        let store = &self.deps.store;
        let owner = from_store(|| store.get_session(self.identity.tenant, &self.identity.workspace));
        Ok(owner.await?.has_workspace)
    }

    /// The header and, for a bundle, its pieces from Postgres.
    pub(super) fn messages(&self, header: v1::WorkspaceHeader) -> ReceiverStream<v1::OpenWorkspaceRequest> {
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let this = self.clone();
        self.deps.tasks.spawn("workspace source", async move {
            let bundle = match &this.origin.source.origin {
                Origin::Bundle(id) => Some(id.as_str()),
                Origin::Empty | Origin::GitUrl(_) => None,
            };
            let mut next = Some(Part::Header(header));
            let mut piece = 0;
            while let Some(part) = next.take() {
                if sender.send(v1::OpenWorkspaceRequest { part: Some(part) }).await.is_err() {
                    return;
                }
                if let Some(id) = bundle {
                    let store = &this.deps.store;
                    let found = from_store(|| store.find_bundle_piece(this.identity.tenant, id, piece));
                    // After an error the stream ends early, and the sandbox refuses the incomplete bundle.
                    next = found.await.ok().flatten().map(Part::Data);
                    piece += 1;
                }
            }
        });
        ReceiverStream::new(receiver)
    }
}
