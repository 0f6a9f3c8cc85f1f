//! Carries what a session has made from its sandbox machine to the broker, for whoever pushes it. Nothing of it is kept on the way. The broker begins when the machine names
//! the base commit, and works while the machine reads the files.

use crate::v1::{self, push_request::Part};
use futures::{Stream, StreamExt as _, future, stream};
use tokio::sync::oneshot;
use tonic::{Status, Streaming};

/// A push that has ended.
#[derive(Debug, Clone)]
pub struct CarriedPush {
    pub answer: v1::PushResponse,
    /// What of the session's work its commits lack.
    pub left_out: Vec<String>,
}

/// An export that is being carried.
#[derive(Debug)]
pub struct Carrier {
    failed: oneshot::Receiver<Status>,
    told: oneshot::Receiver<Vec<String>>,
}

/// Why nothing was pushed, or it is not known whether.
#[derive(Debug)]
pub enum CarryError<E> {
    /// The machine did not give all commits: nothing was pushed.
    Export(Status),
    /// The push failed: the branch was moved or not.
    Push(E),
}

/// Begins to carry an export, and gives the messages for the broker. The header gets the base commit from the first message of the export.
///
/// # Errors
/// Those of the machine.
pub async fn begin(
    mut pieces: Streaming<v1::ExportWorkspaceResponse>,
    header: v1::PushHeader,
) -> Result<(impl Stream<Item = v1::PushRequest> + Send + 'static, Carrier), Status> {
    let begun = pieces.message().await?;
    let begun = begun.ok_or_else(|| Status::unavailable("the export of a session ended before it began"))?;
    let header = v1::PushHeader { base_commit: begun.base_commit, ..header };
    let ((fail, failed), (tell, told)) = (oneshot::channel(), oneshot::channel());
    let header = stream::once(future::ready(Some(Part::Header(header))));
    let export = Export { pieces, fail, tell: Some(tell) };
    let parts = header.chain(export_parts(export)).map(|part| v1::PushRequest { part });
    Ok((parts, Carrier { failed, told }))
}

impl Carrier {
    /// Waits for the end of `push`, which sends the messages.
    ///
    /// # Errors
    /// Those of the machine and of `push`.
    ///
    /// Dropped midway: pushed or not.
    pub async fn end<E>(
        mut self,
        push: impl Future<Output = Result<v1::PushResponse, E>>,
    ) -> Result<CarriedPush, CarryError<E>> {
        let answer = tokio::select! {
            biased;
            // The broker only sees that the commits end early.
            Ok(status) = &mut self.failed => Err(CarryError::Export(status)),
            pushed = push => pushed.map_err(CarryError::Push),
        };
        Ok(CarriedPush { answer: answer?, left_out: self.told.try_recv().unwrap_or_default() })
    }
}

/// An export after its first message.
struct Export {
    pieces: Streaming<v1::ExportWorkspaceResponse>,
    /// Gets the reason if the export fails.
    fail: oneshot::Sender<Status>,
    /// Gets what the commits lack, with the name of the newest one.
    tell: Option<oneshot::Sender<Vec<String>>>,
}

/// The commit and the bytes of an export. A message without a part tells the broker that they ended too early.
fn export_parts(export: Export) -> impl Stream<Item = Option<Part>> + Send + 'static {
    let messages = stream::unfold(Some(export), |export| async move {
        let mut export = export?;
        match export.pieces.message().await {
            Ok(None) => None,
            Ok(Some(v1::ExportWorkspaceResponse { data, commit, left_out, .. })) => {
                if let Some(tell) = export.tell.take_if(|_| !commit.is_empty()) {
                    drop(tell.send(left_out));
                }
                let commit = (!commit.is_empty()).then_some(Part::Commit(commit));
                let parts: Vec<_> = commit.into_iter().chain([Part::Data(data)]).map(Some).collect();
                Some((parts, Some(export)))
            }
            Err(status) => {
                drop(export.fail.send(status));
                Some((vec![None], None))
            }
        }
    });
    messages.flat_map(stream::iter)
}
