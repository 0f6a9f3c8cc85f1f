//! What the scripted model was asked, for tests.

use super::{JOURNAL_BYTES_MAX, JOURNAL_REQUESTS_MAX};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// Headers that are kept.
pub(super) const HEADERS: [&str; 9] = [
    "authorization",
    "x-api-key",
    "anthropic-version",
    "anthropic-beta",
    "user-agent",
    "accept",
    "x-session-affinity",
    "x-session-id",
    "traceparent",
];

/// A handle on the requests that one script received. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_recording: AtomicBool,
    kept: Mutex<Kept>,
    received: watch::Sender<usize>,
    open: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Kept {
    requests: VecDeque<(Request, usize)>,
    bytes: usize,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// For example `/v1/messages`.
    pub path: String,
    /// Those that tests care about, by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The JSON body.
    pub body: Value,
    /// When it was there.
    pub received_at: Instant,
}

impl Journal {
    /// The newest requests, oldest first; at most [`JOURNAL_REQUESTS_MAX`] and [`JOURNAL_BYTES_MAX`] of bodies.
    pub fn requests(&self) -> Vec<Request> {
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.requests.iter().map(|(request, _)| request.clone()).collect()
    }

    /// Waits until `count` requests were received in all.
    pub async fn wait_for(&self, count: usize) {
        // The sender lives as long as `self`.
        let _ = self.0.received.subscribe().wait_for(|received| *received >= count).await;
    }

    /// Waits until no answer is being sent: all ended, or their clients left.
    pub async fn wait_until_idle(&self) {
        let _ = self.0.open.subscribe().wait_for(|open| *open == 0).await;
    }

    pub(super) fn record(&self) {
        self.0.is_recording.store(true, Ordering::Relaxed);
    }

    pub(super) fn push(&self, request: Request, body_bytes: usize) {
        if self.0.is_recording.load(Ordering::Relaxed) {
            let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.bytes += body_bytes;
            kept.requests.push_back((request, body_bytes));
            while kept.requests.len() > JOURNAL_REQUESTS_MAX || kept.bytes > JOURNAL_BYTES_MAX {
                let Some((_, bytes)) = kept.requests.pop_front() else { break };
                kept.bytes -= bytes;
            }
        }
        self.0.received.send_modify(|received| *received += 1);
    }

    /// Counts an answer as open until the result is dropped.
    pub(super) fn open(&self) -> Open {
        self.0.open.send_modify(|open| *open += 1);
        Open(self.clone())
    }
}

/// An answer that is being sent.
#[derive(Debug)]
pub(super) struct Open(Journal);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.open.send_modify(|open| *open -= 1);
    }
}
