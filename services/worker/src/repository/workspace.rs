//! The workspace of a session: opened once, while the model already generates.
// Continues in `attempt`, which performs the steps that `domain::opening` decides on.

mod attempt;
mod install;
mod means;

use super::{
    egress::{Egress, is_sealed},
    proposal::EnvironmentNotice,
    reading::{CommitQuestion, CommitReadings},
};
use crate::process::{
    deps::Deps,
    sandbox::{Identity, lost},
};
use attempt::Attempt;
use chassis::lock;
use domain::{ids::ProjectId, opening::Assurance, session::Source};
use means::Means;
pub(crate) use means::{OpenWorkspace, WorkspaceOrigin};
use rpc::v1;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::OnceCell, time::Instant};
use tonic::Status;

/// Time for which a failed attempt also counts for those who ask later: the sandbox that starts early, the snapshot and the call ask one after the other,
/// and a script that fails must not run for each of them.
const FAILURE_COUNTS: Duration = Duration::from_secs(3);

/// The files of one session. Clones share the state.
#[derive(Clone)]
pub(crate) struct Workspace {
    means: Means,
    open: Arc<OnceCell<OpenWorkspace>>,
    /// Whether this loop has asked for the files.
    is_asked_for: Arc<AtomicBool>,
    /// The last attempt that failed.
    failure: Arc<Mutex<Option<OpeningFailure>>>,
}

/// An attempt that failed.
#[derive(Debug)]
struct OpeningFailure {
    /// The number of the opening.
    opening: u32,
    at: Instant,
    status: Status,
}

impl OpeningFailure {
    /// Whether it is the answer to a caller who began to wait at `begun_at`.
    fn explains(&self, opening: u32, begun_at: Instant) -> bool {
        self.opening == opening && begun_at < self.at + FAILURE_COUNTS
    }
}

impl Workspace {
    pub(crate) fn new(deps: Arc<Deps>, identity: Identity, origin: WorkspaceOrigin) -> Self {
        Self {
            means: Means::new(deps, identity, origin),
            open: Arc::default(),
            is_asked_for: Arc::default(),
            failure: Arc::default(),
        }
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

    /// Whether the session starts from a repository.
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
        self.is_asked_for.store(true, Ordering::Relaxed);
        let begun_at = Instant::now();
        let opening = self.means.identity.opening();
        let open = || async {
            if let Some(failure) = lock(&self.failure).as_ref().filter(|it| it.explains(opening, begun_at)) {
                return Err(failure.status.clone());
            }
            let opened = self.open().await;
            if let Err(status) = &opened {
                *lock(&self.failure) =
                    Some(OpeningFailure { opening, at: Instant::now(), status: status.clone() });
            }
            opened
        };
        self.open.get_or_try_init(open).await.map(|_| ())
    }

    /// Whether files exist as far as this loop knows: it or an earlier one has opened them.
    pub(crate) fn is_open(&self) -> bool {
        self.was_opened() || self.found().is_some()
    }

    /// Finds what the commit of the source has, without files of the session. `None`: the files count, because this loop has asked for them, an agent may have
    /// written them, or some of their content comes from elsewhere.
    ///
    /// # Errors
    /// `store_unavailable`; those of a clone.
    pub(crate) async fn read_source(
        &self,
        question: CommitQuestion<'_>,
    ) -> Result<Option<v1::ReadSourceResponse>, Status> {
        let Means { deps, identity, progress, origin, .. } = &self.means;
        let WorkspaceOrigin { project, source, .. } = origin;
        let readings = CommitReadings::of(deps, identity.tenant, identity.epoch, project, source);
        // An opening that is under way has the door.
        let is_asked_for = self.was_opened() || self.is_asked_for.load(Ordering::Relaxed);
        let Some(readings) = readings.filter(|_| !is_asked_for) else { return Ok(None) };
        let ask = async |request| {
            let read = Box::pin(Attempt::new(&self.means).read_source(request));
            progress.notify_while(deps, &identity.without_epoch(), read).await
        };
        // A script of an earlier turn may have left the door open.
        let closed = self.means.egress.close(Assurance::IfPossible).await;
        let read = match closed {
            Ok(()) => readings.read(question, ask).await,
            Err(status) => Err(status),
        };
        match read {
            // Another loop of the same tree has opened the files meanwhile.
            Err(status) if is_sealed(&status) => Ok(None),
            read => Ok(read?.filter(|read| !read.has_linked_content)),
        }
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
        let opening = Box::pin(Attempt::new(&self.means).open());
        match progress.notify_while(deps, identity, opening).await {
            // Another loop of the same tree has opened the files meanwhile.
            Err(status) if is_sealed(&status) => self.means.find().await?.ok_or_else(lost),
            opened => opened,
        }
    }
}
