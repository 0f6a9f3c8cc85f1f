//! A broadcast channel that is bounded in items and in bytes, alone and together with all channels of its tenant. A receiver that is too slow loses
//! the oldest items and is told so; it then reads from Postgres.

use crate::memory::room::QueueRoom;
use shares::Permit;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::broadcast::{self, WeakSender, error::RecvError};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) items: usize,
    /// Bytes of all items but the newest.
    pub(crate) bytes: usize,
}

/// The sending end. Clones share the ring.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    /// The channel does not own the items, so that it can lose them before it is full.
    channel: broadcast::Sender<Weak<T>>,
    backlog: Arc<Backlog<T>>,
    bytes_max: usize,
    room: QueueRoom,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        let (channel, backlog) = (self.channel.clone(), Arc::clone(&self.backlog));
        Self { channel, backlog, bytes_max: self.bytes_max, room: self.room.clone() }
    }
}

/// The items that some receiver has not received yet.
#[derive(Debug)]
struct Backlog<T> {
    kept: Mutex<Kept<T>>,
    /// Whether they may hold room of the tenant. Receivers then give it back; otherwise they need not look.
    holds_room: AtomicBool,
}

impl<T> Backlog<T> {
    fn lock(&self) -> MutexGuard<'_, Kept<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Items, oldest first, with their bytes.
#[derive(Debug)]
struct Kept<T> {
    items: VecDeque<KeptItem<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptItem<T> {
    _item: Arc<T>,
    bytes: usize,
    /// `None`: it was alone.
    _permit: Option<Permit>,
}

#[derive(Debug)]
pub(crate) struct Receiver<T> {
    // Dropped first: items that only this receiver was waiting for then have no reader.
    items: broadcast::Receiver<Weak<T>>,
    reader: BacklogReader<T>,
}

/// Gives back the room of items that every receiver has received, also when its own receiver leaves.
#[derive(Debug)]
struct BacklogReader<T> {
    channel: WeakSender<Weak<T>>,
    backlog: Arc<Backlog<T>>,
}

impl<T> Sender<T> {
    /// Creates a ring without receivers.
    pub(crate) fn new(bounds: Bounds, room: QueueRoom) -> Self {
        let kept = Mutex::new(Kept { items: VecDeque::new(), bytes: 0 });
        let backlog = Arc::new(Backlog { kept, holds_room: AtomicBool::new(false) });
        let channel = broadcast::Sender::new(bounds.items);
        Self { channel, backlog, bytes_max: bounds.bytes, room }
    }

    /// Adds a receiver of all later items.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        let (channel, backlog) = (self.channel.downgrade(), Arc::clone(&self.backlog));
        Receiver { items: self.channel.subscribe(), reader: BacklogReader { channel, backlog } }
    }

    /// Whether every receiver has received every item.
    pub(crate) fn is_received(&self) -> bool {
        self.channel.is_empty()
    }

    /// Sends an item of about `bytes` bytes. Without receivers it is lost.
    pub(crate) fn send(&self, item: T, bytes: usize) {
        let item = Arc::new(item);
        let mut kept = self.backlog.lock();
        kept.trim(self.channel.len(), self.bytes_max);
        let permit = if kept.items.is_empty() { None } else { self.room.take(bytes) };
        if permit.is_none() {
            // Without room, the newest item is kept alone.
            kept.trim(0, 0);
        }
        // This precedes the send, because the receiver of the item must know that the item holds room.
        self.backlog.holds_room.store(permit.is_some(), Ordering::Relaxed);
        if self.channel.send(Arc::downgrade(&item)).is_err() {
            kept.trim(0, 0);
            return;
        }
        kept.items.push_back(KeptItem { _item: item, bytes, _permit: permit });
        kept.bytes += bytes;
        kept.trim(self.channel.len().max(1), self.bytes_max.max(bytes));
    }
}

impl<T> Kept<T> {
    /// Drops the oldest items beyond the bounds.
    fn trim(&mut self, items_max: usize, bytes_max: usize) {
        while self.items.len() > items_max || self.bytes > bytes_max {
            let Some(item) = self.items.pop_front() else { return };
            self.bytes -= item.bytes;
        }
    }
}

impl<T> Receiver<T> {
    /// Waits for the next item. Cancel-safe.
    ///
    /// # Errors
    /// `Lagged`: items were lost, and the next call returns a later one. `Closed`: all senders are gone.
    pub(crate) async fn recv(&mut self) -> Result<Arc<T>, RecvError> {
        let item = self.items.recv().await?.upgrade();
        if self.reader.holds_room() && self.items.is_empty() {
            self.reader.give_room_back();
        }
        item.ok_or(RecvError::Lagged(1))
    }

    /// A receiver of all items that are sent from now on.
    pub(crate) fn resubscribe(&self) -> Self {
        let (channel, backlog) = (self.reader.channel.clone(), Arc::clone(&self.reader.backlog));
        Self { items: self.items.resubscribe(), reader: BacklogReader { channel, backlog } }
    }
}

impl<T> BacklogReader<T> {
    fn holds_room(&self) -> bool {
        self.backlog.holds_room.load(Ordering::Relaxed)
    }

    /// Drops the items that every receiver has received. The sender drops them with its next item, but a channel of an idle session has none for days.
    fn give_room_back(&self) {
        let Some(channel) = self.channel.upgrade() else { return };
        let mut kept = self.backlog.lock();
        kept.trim(channel.len(), usize::MAX);
        if kept.items.is_empty() {
            self.backlog.holds_room.store(false, Ordering::Relaxed);
        }
    }
}

impl<T> Drop for BacklogReader<T> {
    fn drop(&mut self) {
        if self.holds_room() {
            self.give_room_back();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::memory::room::{Room, TENANT_QUEUES_BYTES_MAX};
    use domain::ids::TenantId;

    const BOUNDS: Bounds = Bounds { items: 16, bytes: 100 };

    fn room() -> QueueRoom {
        QueueRoom::new(Arc::new(Room::new()), TenantId(uuid::Uuid::nil()))
    }

    #[tokio::test]
    async fn a_slow_receiver_loses_the_oldest_bytes() {
        let sender = Sender::new(BOUNDS, room());
        let (mut fast, mut slow) = (sender.subscribe(), sender.subscribe());
        for number in 0..5 {
            sender.send(number, 40);
            assert_eq!(*fast.recv().await.unwrap(), number);
        }
        for _ in 0..3 {
            assert_eq!(slow.recv().await, Err(RecvError::Lagged(1)));
        }
        assert_eq!((*slow.recv().await.unwrap(), *slow.recv().await.unwrap()), (3, 4));
    }

    #[tokio::test]
    async fn the_newest_item_is_kept_however_large_and_forgotten_once_received() {
        let sender = Sender::new(BOUNDS, room());
        let mut receiver = sender.subscribe();
        sender.send("small", 1);
        sender.send("large", 1_000);
        assert_eq!(receiver.recv().await, Err(RecvError::Lagged(1)));
        let large = Arc::downgrade(&receiver.recv().await.unwrap());
        sender.send("next", 1);
        assert!(large.upgrade().is_none());
        drop(receiver);
        sender.send("nobody receives this", 1);
        assert!(sender.backlog.lock().items.is_empty());
    }

    #[tokio::test]
    async fn without_room_of_the_tenant_the_newest_item_is_kept_alone() {
        let room = room();
        let sender = Sender::new(BOUNDS, room.clone());
        let mut receiver = sender.subscribe();
        let of_others = room.take(TENANT_QUEUES_BYTES_MAX).unwrap();
        sender.send("lost", 1);
        sender.send("kept", 1);
        assert_eq!(receiver.recv().await, Err(RecvError::Lagged(1)));
        drop(of_others);
        sender.send("next", 1);
        assert_eq!((*receiver.recv().await.unwrap(), *receiver.recv().await.unwrap()), ("kept", "next"));
    }

    #[tokio::test]
    async fn items_that_all_have_received_hold_no_room() {
        let room = room();
        let sender = Sender::new(BOUNDS, room.clone());
        let mut receivers = [sender.subscribe(), sender.subscribe()];
        sender.send("first", 1);
        sender.send("second", 1);
        for receiver in &mut receivers {
            assert!(room.take(TENANT_QUEUES_BYTES_MAX).is_none(), "one has not received them");
            assert_eq!(
                (*receiver.recv().await.unwrap(), *receiver.recv().await.unwrap()),
                ("first", "second")
            );
        }
        assert!(room.take(TENANT_QUEUES_BYTES_MAX).is_some());

        let late = sender.subscribe();
        sender.send("third", 1);
        sender.send("fourth", 1);
        for receiver in &mut receivers {
            assert_eq!(
                (*receiver.recv().await.unwrap(), *receiver.recv().await.unwrap()),
                ("third", "fourth")
            );
        }
        assert!(room.take(TENANT_QUEUES_BYTES_MAX).is_none(), "one has not received them");
        drop(late);
        assert!(room.take(TENANT_QUEUES_BYTES_MAX).is_some(), "it has left");
    }

    #[tokio::test]
    async fn an_item_is_received_when_all_have_received_it_or_have_left() {
        let sender = Sender::new(BOUNDS, room());
        assert!(sender.is_received(), "nobody receives");
        let (mut first, second) = (sender.subscribe(), sender.subscribe());
        sender.send("item", 1);
        assert!(!sender.is_received());
        first.recv().await.unwrap();
        assert!(!sender.is_received(), "one has not received it");
        drop(second);
        assert!(sender.is_received());
    }
}
