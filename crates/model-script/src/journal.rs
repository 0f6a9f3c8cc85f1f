//! Records the requests to the scripted model, for tests.

use super::limits::{JOURNAL_BYTES_MAX, JOURNAL_REQUESTS_MAX};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch;

pub(super) const HEADERS: [&str; 10] = [
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "anthropic-version",
    "anthropic-beta",
    "user-agent",
    "accept",
    "x-session-affinity",
    "x-session-id",
    "traceparent",
];

/// A handle to the requests that one script received. Clones share them.
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
    forgotten: usize,
}

#[derive(Debug, Clone)]
pub struct Request {
    /// For example `/v1/messages`.
    pub path: String,
    /// The headers that tests check, by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The JSON body.
    pub body: Value,
    /// When it arrived, by the clock of the machine: before anything that its answer causes.
    pub received_at: SystemTime,
}

impl Journal {
    /// The newest requests, oldest first; at most [`JOURNAL_REQUESTS_MAX`], and [`JOURNAL_BYTES_MAX`] bytes of bodies.
    pub fn requests(&self) -> Vec<Request> {
        let state = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests.iter().map(|(request, _)| request.clone()).collect()
    }

    /// Removes and returns the requests since the last call, oldest first. A test that calls this often enough sees all
    /// of them.
    pub fn take(&self) -> Vec<Request> {
        let mut state = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        state.bytes = 0;
        state.requests.drain(..).map(|(request, _)| request).collect()
    }

    /// The number of requests that were dropped before a test could see them.
    pub fn forgotten(&self) -> usize {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner).forgotten
    }

    /// Waits until `count` requests have arrived in total.
    pub async fn wait_for(&self, count: usize) {
        // The sender lives as long as `self`.
        let _ = self.0.received.subscribe().wait_for(|received| *received >= count).await;
    }

    /// Waits until no answer is being sent: all have ended, or their clients have left.
    pub async fn wait_until_idle(&self) {
        let _ = self.0.open.subscribe().wait_for(|open| *open == 0).await;
    }

    pub(super) fn record(&self) {
        self.0.is_recording.store(true, Ordering::Relaxed);
    }

    pub(super) fn push(&self, request: Request, body_bytes: usize) {
        if self.0.is_recording.load(Ordering::Relaxed) {
            let mut state = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
            state.bytes += body_bytes;
            state.requests.push_back((request, body_bytes));
            while state.requests.len() > JOURNAL_REQUESTS_MAX || state.bytes > JOURNAL_BYTES_MAX {
                let Some((_, bytes)) = state.requests.pop_front() else { break };
                state.bytes -= bytes;
                state.forgotten += 1;
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

#[derive(Debug)]
pub(super) struct Open(Journal);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.open.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn request(number: usize) -> Request {
        let body = Value::from(number);
        Request { path: String::new(), headers: BTreeMap::new(), body, received_at: SystemTime::now() }
    }

    fn bodies(requests: Vec<Request>) -> Vec<u64> {
        requests.iter().filter_map(|request| request.body.as_u64()).collect()
    }

    #[test]
    fn taken_requests_come_once_and_forgotten_ones_are_counted() {
        let journal = Journal::default();
        journal.push(request(9), 1);
        journal.record();
        journal.push(request(1), 1);
        journal.push(request(2), 1);
        assert_eq!(bodies(journal.take()), [1, 2], "what came before the recording is not kept");
        assert_eq!((bodies(journal.take()), journal.forgotten()), (vec![], 0));
        for number in 0..JOURNAL_REQUESTS_MAX + 3 {
            journal.push(request(number), 1);
        }
        assert_eq!((journal.take().len(), journal.forgotten()), (JOURNAL_REQUESTS_MAX, 3));
    }
}
