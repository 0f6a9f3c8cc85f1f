//! The queue between a stream and its subscriber: bounded in items and in bytes, so that a subscriber that does not read holds
//! little memory. A full queue makes the stream wait.

use crate::ground::taken_room::HeldRoom;
use domain::limits;
use futures::{Stream, StreamExt as _};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Bytes of the items in one queue. A larger item waits until the queue is empty, and then fills it alone.
const BYTES_MAX: usize = 256 * 1024;
/// Unit in which the bytes are counted.
const UNIT_BYTES: usize = 1024;

/// The end of the stream. Clones share the queue.
#[derive(Debug, Clone)]
pub(crate) struct Sender<T> {
    items: mpsc::Sender<Queued<T>>,
    bytes: Arc<Semaphore>,
}

/// The end of the subscriber.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    items: mpsc::Receiver<Queued<T>>,
    /// The room of the newest item. The subscriber has sent that item when it asks for the next one.
    held: Option<HeldRoom>,
}

#[derive(Debug)]
struct Queued<T> {
    item: T,
    held: Option<HeldRoom>,
    _bytes: OwnedSemaphorePermit,
}

/// A reserved slot of the queue.
pub(crate) struct QueueSlot<'a, T> {
    slot: mpsc::Permit<'a, Queued<T>>,
    bytes: OwnedSemaphorePermit,
}

/// The subscriber left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left;

/// Creates a queue.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (items, receiver) = mpsc::channel(limits::SUBSCRIBER_QUEUE_MAX);
    let bytes = Arc::new(Semaphore::new(BYTES_MAX / UNIT_BYTES));
    (Sender { items, bytes }, Receiver { items: receiver, held: None })
}

impl<T> Sender<T> {
    /// Adds an item of about `bytes` bytes as soon as there is a place.
    ///
    /// # Errors
    /// `Left` if the subscriber left; the item is lost.
    ///
    /// Dropped midway: the item is not added.
    pub(crate) async fn send(&self, item: T, bytes: usize) -> Result<(), Left> {
        self.reserve(bytes).await?.fill(item, None);
        Ok(())
    }

    /// Waits for a place for an item of about `bytes` bytes: the item need not exist yet.
    ///
    /// # Errors
    /// `Left` if the subscriber left.
    ///
    /// Cancel-safe.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<QueueSlot<'_, T>, Left> {
        let units = bytes.clamp(1, BYTES_MAX).div_ceil(UNIT_BYTES);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let bytes = match Arc::clone(&self.bytes).try_acquire_many_owned(units) {
            Ok(bytes) => bytes,
            // Only now: to register for the end of the subscriber costs as much as to deliver an item.
            Err(_) => tokio::select! {
                bytes = Arc::clone(&self.bytes).acquire_many_owned(units) => bytes.map_err(|_| Left)?,
                () = self.items.closed() => return Err(Left),
            },
        };
        let slot = self.items.reserve().await.map_err(|_| Left)?;
        Ok(QueueSlot { slot, bytes })
    }

    /// Waits until the subscriber leaves. Cancel-safe.
    pub(crate) async fn closed(&self) {
        self.items.closed().await;
    }

    /// Whether the subscriber left.
    pub(crate) fn is_closed(&self) -> bool {
        self.items.is_closed()
    }
}

impl<T> QueueSlot<'_, T> {
    /// Adds the item, which holds `held` until the subscriber asks for the next one.
    pub(crate) fn fill(self, item: T, held: Option<HeldRoom>) {
        self.slot.send(Queued { item, held, _bytes: self.bytes });
    }
}

impl<T> Receiver<T> {
    /// Waits for the next item; `None` after the end of the stream. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        self.next().await
    }
}

impl<T> Stream for Receiver<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.held = None;
        let Poll::Ready(next) = self.items.poll_recv(context) else { return Poll::Pending };
        Poll::Ready(next.map(|Queued { item, held, .. }| {
            self.held = held;
            item
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn a_queue_holds_so_many_bytes_or_one_larger_item() {
        let (sender, mut receiver) = channel();
        sender.send("half", BYTES_MAX / 2).await.unwrap();
        sender.send("other half", BYTES_MAX / 2).await.unwrap();
        let mut waiting = Box::pin(sender.send("too large", 5 * BYTES_MAX));
        assert_eq!((&mut waiting).now_or_never(), None);
        assert_eq!(receiver.recv().await, Some("half"));
        assert_eq!((&mut waiting).now_or_never(), None, "it needs the whole queue");
        assert_eq!(receiver.recv().await, Some("other half"));
        waiting.await.unwrap();
        assert_eq!(sender.send("x", 1).now_or_never(), None);
        assert_eq!(receiver.recv().await, Some("too large"));
    }

    #[tokio::test]
    async fn a_stream_that_waits_for_room_notices_that_its_subscriber_left() {
        let (sender, receiver) = channel();
        sender.send("all", BYTES_MAX).await.unwrap();
        let mut waiting = Box::pin(sender.send("more", 1));
        assert_eq!((&mut waiting).now_or_never(), None);
        drop(receiver);
        assert_eq!(waiting.await, Err(Left));
        assert!(sender.is_closed());
    }
}
