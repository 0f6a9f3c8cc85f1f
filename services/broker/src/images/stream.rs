//! Carries a layer from the registry to the caller. A task reads, so that the waits end also if nobody polls the stream.

use super::{audit::AuditLine, error::ImageError, patience::Patience, registry::blob::BlobReader};
use bytes::Bytes;
use futures::Stream;
use shares::Permit;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// Pieces that wait for the caller, each with at most 256 KiB: 1 MiB for one layer. Beyond it the broker reads no more from the registry.
const PIECES_MAX: usize = 4;

/// The bytes of a layer, in pieces of at most [`rpc::CHUNK_BYTES`]. It ends without an error only if the layer is whole.
#[derive(Debug)]
pub struct LayerStream {
    messages: mpsc::Receiver<Message>,
    is_over: bool,
}

#[derive(Debug)]
enum Message {
    Bytes(Bytes),
    Error(ImageError),
    Complete,
}

pub(super) struct Transfer {
    pub(super) blob: BlobReader,
    pub(super) audit: AuditLine,
    pub(super) patience: Patience,
    pub(super) shutdown: CancellationToken,
    /// Given back when the transfer ends.
    pub(super) permit: Permit,
}

/// Nobody takes the bytes any more.
struct CallerGone;

impl Transfer {
    /// Gives the work of the transfer, and the stream of its caller.
    pub(super) fn start(self) -> (impl Future<Output = ()> + Send + 'static, LayerStream) {
        let (sender, messages) = mpsc::channel(PIECES_MAX);
        (self.run(sender), LayerStream { messages, is_over: false })
    }

    async fn run(self, caller: mpsc::Sender<Message>) {
        let Self { mut blob, mut audit, patience, shutdown, permit } = self;
        let deadline = Instant::now() + patience.layer;
        let carried = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(Err(ImageError::Interrupted("the broker stops"))),
            () = caller.closed() => Err(CallerGone),
            carried = timeout_at(deadline, carry(&mut blob, &caller, patience)) => {
                carried.unwrap_or(Ok(Err(ImageError::Interrupted("the layer did not arrive in time"))))
            }
        };
        audit.bytes += blob.bytes();
        drop((blob, permit));
        let last = match carried {
            Err(CallerGone) => return,
            Ok(Ok(())) => {
                audit.note_outcome("ok");
                Message::Complete
            }
            Ok(Err(error)) => {
                audit.note_outcome(error.code().as_str());
                Message::Error(error)
            }
        };
        drop(audit);
        // A caller that gets no last message sees that the stream was interrupted.
        let _ = timeout(patience.caller, caller.send(last)).await;
    }
}

/// Carries all bytes. The outer error says that nobody takes them, the inner one that they do not come.
async fn carry(
    blob: &mut BlobReader,
    caller: &mpsc::Sender<Message>,
    patience: Patience,
) -> Result<Result<(), ImageError>, CallerGone> {
    loop {
        let mut bytes = match blob.next().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(rpc::CHUNK_BYTES));
            let sent = timeout(patience.caller, caller.send(Message::Bytes(piece))).await;
            if !matches!(sent, Ok(Ok(()))) {
                return Err(CallerGone);
            }
        }
    }
}

impl Stream for LayerStream {
    type Item = Result<Bytes, ImageError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let item = match ready!(self.messages.poll_recv(context)) {
            Some(Message::Bytes(bytes)) => return Poll::Ready(Some(Ok(bytes))),
            Some(Message::Complete) => None,
            Some(Message::Error(error)) => Some(Err(error)),
            // The task ended without a last message.
            None => {
                Some(Err(ImageError::Interrupted("the caller did not read in time, or the broker failed")))
            }
        };
        self.is_over = true;
        Poll::Ready(item)
    }
}
