//! The queue between a stream and its subscriber: bounded in items and in bytes, so that a subscriber that does not read holds
//! little memory. A full queue makes the stream wait. All queues of a tenant together are bounded too.

use crate::memory::{room::QueueRoom, taken_room::HeldRoom};
use domain::limits;
use futures::{Stream, StreamExt as _};
use shares::Permit;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Bytes of the items in one queue. A larger item waits until the queue is empty, and then fills it alone.
const BYTES_MAX: usize = 256 * 1024;
/// Bytes of one queue that need no room of the tenant: nearly all queues have fewer.
const FREE_BYTES: usize = 4 * 1024;
/// Unit in which the bytes are counted.
const UNIT_BYTES: usize = 1024;

/// The end of the stream. Clones share the queue.
#[derive(Debug, Clone)]
pub(crate) struct Sender<T> {
    items: mpsc::Sender<Box<Queued<T>>>,
    bytes: Arc<Semaphore>,
    room: QueueRoom,
}

/// The end of the subscriber.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    items: mpsc::Receiver<Box<Queued<T>>>,
    /// The room of the newest item. The subscriber has sent that item when it asks for the next one.
    held: Option<HeldRoom>,
}

/// An item that waits. It is boxed, because an empty channel keeps room for 32 values, and nearly all queues are empty.
#[derive(Debug)]
struct Queued<T> {
    item: T,
    held: Option<HeldRoom>,
    _bytes: OwnedSemaphorePermit,
    _permit: Option<Permit>,
}

/// A reserved slot of the queue.
pub(crate) struct QueueSlot<'a, T> {
    slot: mpsc::Permit<'a, Box<Queued<T>>>,
    bytes: OwnedSemaphorePermit,
    permit: Option<Permit>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left;

/// Creates the queue of a stream.
pub(crate) fn channel<T>(room: QueueRoom) -> (Sender<T>, Receiver<T>) {
    let (items, receiver) = mpsc::channel(limits::SUBSCRIBER_QUEUE_MAX);
    let bytes = Arc::new(Semaphore::new(BYTES_MAX / UNIT_BYTES));
    (Sender { items, bytes, room }, Receiver { items: receiver, held: None })
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
        let mut units = bytes.clamp(1, BYTES_MAX).div_ceil(UNIT_BYTES);
        let mut permit = None;
        let waiting = BYTES_MAX / UNIT_BYTES - self.bytes.available_permits();
        if waiting > 0 && waiting + units > FREE_BYTES / UNIT_BYTES {
            permit = self.room.take(units * UNIT_BYTES);
            if permit.is_none() {
                // Without room, the item waits until it is alone in the queue.
                units = BYTES_MAX / UNIT_BYTES;
            }
        }
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
        Ok(QueueSlot { slot, bytes, permit })
    }

    /// Waits until the subscriber leaves. Cancel-safe.
    pub(crate) async fn closed(&self) {
        self.items.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.items.is_closed()
    }
}

impl<T> QueueSlot<'_, T> {
    /// Adds the item, which holds `held` until the subscriber asks for the next one.
    pub(crate) fn fill(self, item: T, held: Option<HeldRoom>) {
        self.slot.send(Box::new(Queued { item, held, _bytes: self.bytes, _permit: self.permit }));
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
        Poll::Ready(next.map(|queued| {
            let Queued { item, held, .. } = *queued;
            self.held = held;
            item
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::memory::room::{Room, TENANT_QUEUES_BYTES_MAX};
    use domain::ids::TenantId;
    use futures::FutureExt as _;
    use tokio::task::coop::unconstrained;

    fn room() -> QueueRoom {
        QueueRoom::new(Arc::new(Room::new()), TenantId(uuid::Uuid::nil()))
    }

    #[tokio::test]
    async fn a_queue_holds_so_many_bytes_or_one_larger_item() {
        let (sender, mut receiver) = channel(room());
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
        let (sender, receiver) = channel(room());
        sender.send("all", BYTES_MAX).await.unwrap();
        let mut waiting = Box::pin(sender.send("more", 1));
        assert_eq!((&mut waiting).now_or_never(), None);
        drop(receiver);
        assert_eq!(waiting.await, Err(Left));
        assert!(sender.is_closed());
    }

    #[tokio::test]
    async fn the_queues_of_a_tenant_hold_so_many_bytes_and_then_one_item_each() {
        let (room, half) = (room(), BYTES_MAX / 2);
        // So many sends would use up what tokio lets a task do before it must wait.
        let send = |sender: &Sender<&'static str>, item, bytes| {
            unconstrained(sender.send(item, bytes)).now_or_never()
        };
        let begin = || {
            let (sender, receiver) = channel(room.clone());
            assert_eq!(send(&sender, "first", 1), Some(Ok(())), "an empty queue takes an item");
            (sender, receiver)
        };
        let mut queues = vec![];
        for _ in 0..TENANT_QUEUES_BYTES_MAX / half {
            let queue = begin();
            assert_eq!(send(&queue.0, "second", half), Some(Ok(())), "there is room");
            queues.push(queue);
        }
        let (sender, mut receiver) = begin();
        assert_eq!(send(&sender, "second", half), None, "the tenant has no room");
        assert_eq!(receiver.recv().await, Some("first"));
        assert_eq!(send(&sender, "second", half), Some(Ok(())), "it is alone");
        assert_eq!(send(&sender, "third", 1), None, "the second one is alone");
        assert_eq!(receiver.recv().await, Some("second"));

        assert_eq!(send(&sender, "fourth", 1), Some(Ok(())));
        queues.truncate(1);
        assert_eq!(send(&sender, "fifth", half), Some(Ok(())), "the others gave their room back");
    }
}
