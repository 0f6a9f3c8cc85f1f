//! The workspace of a session: opened once, while the model already generates.
// Continues in `attempt`, which performs the steps that `domain::opening` decides on.

mod attempt;
mod install;
mod means;

use super::{
    egress::{Egress, is_sealed},
    proposal::EnvironmentNotice,
};
use crate::process::{
    deps::Deps,
    sandbox::{Identity, lost},
};
use attempt::Attempt;
use domain::{ids::ProjectId, session::Source};
use means::Means;
pub(crate) use means::{OpenWorkspace, WorkspaceOrigin};
use std::sync::Arc;
use tokio::sync::OnceCell;
use tonic::Status;

/// The files of one session. Clones share the state.
#[derive(Clone)]
pub(crate) struct Workspace {
    means: Means,
    open: Arc<OnceCell<OpenWorkspace>>,
}

impl Workspace {
    pub(crate) fn new(deps: Arc<Deps>, identity: Identity, origin: WorkspaceOrigin) -> Self {
        Self { means: Means::new(deps, identity, origin), open: Arc::default() }
    }

    /// The project of its session.
    pub(super) fn project(&self) -> &ProjectId {
        &self.means.origin.project
    }

    /// What its files start from.
    pub(super) fn source(&self) -> &Source {
        &self.means.origin.source
    }

    /// Its door to the network.
    pub(crate) fn egress(&self) -> &Egress {
        &self.means.egress
    }

    /// Whether the session starts from a repository, whose files must exist even if no tool reads them.
    pub(crate) fn has_source(&self) -> bool {
        self.means.has_source()
    }

    /// Whether an earlier turn may have written files.
    pub(crate) fn was_opened(&self) -> bool {
        self.means.origin.was_opened
    }

    /// Waits until the workspace is open, and opens it if necessary. Concurrent callers share one attempt. Files that the sandbox
    /// machine lost are not opened again: the work of earlier turns would vanish without a word.
    ///
    /// # Errors
    /// `workspace_lost`; `store_unavailable`; those of the sandbox.
    pub(crate) async fn ready(&self) -> Result<(), Status> {
        self.open.get_or_try_init(|| self.open()).await.map(|_| ())
    }

    /// What this loop found when it opened the workspace; `None`: it has not opened it.
    pub(crate) fn found(&self) -> Option<&OpenWorkspace> {
        self.open.get()
    }

    /// Takes what people must know about the environment of this loop: the repository has another one. `None` if an earlier loop opened the files.
    pub(crate) fn take_environment_notice(&self) -> Option<EnvironmentNotice> {
        self.means.take_notice()
    }

    /// Why this loop opened a copy without what is installed in its origin.
    pub(super) fn missing_install(&self) -> Option<&EnvironmentNotice> {
        self.means.missing_install()
    }

    /// Whether a loop recorded that the files exist.
    pub(super) async fn is_recorded(&self) -> Result<bool, Status> {
        self.means.is_recorded().await
    }

    async fn open(&self) -> Result<OpenWorkspace, Status> {
        let Means { deps, identity, progress, .. } = &self.means;
        match progress.notify_while(deps, identity, Box::pin(Attempt::new(&self.means).open())).await {
            // Another loop of the same tree has opened the files meanwhile.
            Err(status) if is_sealed(&status) => self.means.find().await?.ok_or_else(lost),
            opened => opened,
        }
    }
}
