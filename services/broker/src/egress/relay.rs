//! Carries bytes between two streams, until both ends are silent or a bound is reached.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    time::{Instant, sleep_until},
};

/// Time after which a connection without a byte ends.
pub(super) const IDLE: Duration = Duration::from_secs(120);
/// Bytes that one direction holds.
const BUFFER_BYTES: usize = 32 * 1024;

/// Why a relay ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The quota is used up.
    Quota,
    /// Nothing was transferred for [`IDLE`].
    Idle,
}

/// The bytes that a session may still transfer.
#[derive(Debug)]
pub(super) struct Quota(AtomicU64);

impl Quota {
    pub(super) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    fn take(&self, bytes: u64) -> Result<(), Cut> {
        // What is left is too little for these bytes, and is taken too: the next connection is then refused with words.
        let rest = |left: u64| Some(left.saturating_sub(bytes));
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).unwrap_or(0);
        if left < bytes { Err(Cut::Quota) } else { Ok(()) }
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// The relay of one connection.
pub(super) struct Relay {
    quota: Arc<Quota>,
    bytes: AtomicU64,
    /// Milliseconds from `begun_at` to the newest byte.
    newest_ms: AtomicU64,
    begun_at: Instant,
}

impl Relay {
    pub(super) fn new(quota: Arc<Quota>) -> Self {
        let (bytes, newest_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { quota, bytes, newest_ms, begun_at: Instant::now() }
    }

    /// Whether nothing more may be transferred.
    pub(super) fn is_used_up(&self) -> bool {
        self.quota.is_used_up()
    }

    /// Bytes in both directions so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Carries bytes until both directions have ended. An error of the network is an end.
    ///
    /// # Errors
    /// `Cut`.
    pub(super) async fn run<A, B>(&self, a: A, b: B) -> Result<(), Cut>
    where
        A: AsyncRead + AsyncWrite,
        B: AsyncRead + AsyncWrite,
    {
        let ((from_a, to_a), (from_b, to_b)) = (split(a), split(b));
        let both = async { tokio::try_join!(self.carry(from_a, to_b), self.carry(from_b, to_a)).map(drop) };
        tokio::select! {
            ended = both => ended,
            () = self.idle() => Err(Cut::Idle),
        }
    }

    /// Carries bytes in one direction until it ends.
    ///
    /// # Errors
    /// `Cut`.
    pub(super) async fn run_one_way(
        &self,
        from: impl AsyncRead + Unpin,
        to: impl AsyncWrite + Unpin,
    ) -> Result<(), Cut> {
        tokio::select! {
            ended = self.carry(from, to) => ended,
            () = self.idle() => Err(Cut::Idle),
        }
    }

    async fn carry(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> Result<(), Cut> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = from.read(&mut buffer).await.unwrap_or(0);
            if count == 0 {
                // The other direction goes on.
                let _ = to.shutdown().await;
                return Ok(());
            }
            self.note(count as u64)?;
            if to.write_all(&buffer[..count]).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Counts bytes before they are sent.
    pub(super) fn note(&self, bytes: u64) -> Result<(), Cut> {
        self.quota.take(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let newest = u64::try_from(self.begun_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.newest_ms.store(newest, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until nothing was transferred for [`IDLE`].
    pub(super) async fn idle(&self) {
        loop {
            let newest = Duration::from_millis(self.newest_ms.load(Ordering::Relaxed));
            let ends_at = self.begun_at + newest + IDLE;
            if ends_at <= Instant::now() {
                return;
            }
            sleep_until(ends_at).await;
        }
    }
}
