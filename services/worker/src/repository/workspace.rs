//! The workspace of a session: opened once, while the model already generates.

use crate::process::{
    deps::Deps,
    sandbox::{Identity, is_away},
    store_timeout::with_store_timeout,
};
use domain::{
    conversation::message,
    session::{Origin, Source},
};
use rpc::v1::{self, open_workspace_request::Part};
use std::sync::Arc;
use tokio::sync::{OnceCell, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Pieces of a bundle that are read ahead of the sandbox.
const PIECES_AHEAD: usize = 4;

/// The files of one session. Clones share the state.
#[derive(Clone)]
pub(crate) struct Workspace {
    deps: Arc<Deps>,
    identity: Identity,
    source: Source,
    open: Arc<OnceCell<()>>,
}

impl Workspace {
    pub(crate) fn new(deps: Arc<Deps>, identity: Identity, source: Source) -> Self {
        Self { deps, identity, source, open: Arc::default() }
    }

    /// Whether the session starts from a repository, whose files must exist even if no tool reads them.
    pub(crate) fn has_source(&self) -> bool {
        self.source.origin != Origin::Empty
    }

    /// Waits until the workspace is open, and opens it if necessary. Concurrent callers share one attempt.
    pub(crate) async fn ready(&self) -> Result<(), Status> {
        self.open.get_or_try_init(|| self.open()).await.copied()
    }

    async fn open(&self) -> Result<(), Status> {
        let request = v1::GetWorkspaceRequest { fence: self.identity.fence() };
        let sandbox = &self.deps.sandbox;
        let found = sandbox.call(|mut client| {
            let request = request.clone();
            async move { client.get_workspace(request).await }
        });
        if found.await?.exists {
            return Ok(());
        }
        sandbox
            .call(|mut client| {
                let messages = self.messages();
                async move { client.open_workspace(messages).await }
            })
            .await?;
        Ok(())
    }

    /// The header and, for a bundle, its pieces from Postgres.
    fn messages(&self) -> ReceiverStream<v1::OpenWorkspaceRequest> {
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let this = self.clone();
        tokio::spawn(async move {
            let (git_url, bundle) = match &this.source.origin {
                Origin::Empty => (String::new(), None),
                Origin::GitUrl(url) => (url.clone(), None),
                Origin::Bundle(id) => (String::new(), Some(id.as_str())),
            };
            let header = v1::WorkspaceHeader {
                fence: this.identity.fence(),
                git_url,
                bundle: bundle.is_some(),
                revision: this.source.revision.clone().unwrap_or_default(),
                uncommitted: this.source.uncommitted,
            };
            let mut next = Some(Part::Header(header));
            let mut piece = 0;
            while let Some(part) = next.take() {
                if sender.send(v1::OpenWorkspaceRequest { part: Some(part) }).await.is_err() {
                    return;
                }
                if let Some(id) = bundle {
                    match with_store_timeout(this.deps.store.find_bundle_piece(
                        this.identity.tenant,
                        id,
                        piece,
                    ))
                    .await
                    {
                        Ok(data) => next = data.map(Part::Data),
                        // The stream ends early, and the sandbox refuses the incomplete bundle.
                        Err(error) => {
                            tracing::warn!(error = &error as &dyn std::error::Error, "cannot read a bundle")
                        }
                    }
                    piece += 1;
                }
            }
        });
        ReceiverStream::new(receiver)
    }
}

/// The error that a turn shows when its workspace cannot be opened.
pub(crate) fn failure(status: &Status) -> message::Error {
    if is_away(status) {
        return message::Error::new(
            "SandboxUnavailableError",
            "The sandbox service does not answer; try again later",
        );
    }
    let code = rpc::status::code_of(status).unwrap_or_else(|| "workspace_failed".to_owned());
    message::Error::new("WorkspaceError", format!("{} ({code})", status.message()))
}
