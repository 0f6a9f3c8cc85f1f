//! Processes that start before a conversion needs them: most of the time of a short conversion is the start of its process. Each one
//! waits behind its walls, serves one request, and ends.
//!
//! An upgrade may replace the program while a service runs. A spare that started before is of the build of its service and serves it. A
//! process that starts afterwards may be of another build, which ends its conversion with `Protocol`, as without spares.

use crate::{
    bounds::{SPARES_MAX, WALL_TIME_MAX},
    error::Error,
    process::{Outcome, Process},
};
use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};
use tokio::{sync::mpsc, task::spawn_blocking, time::timeout};

/// The spares of one kind of turn.
///
/// Dropped: they are killed. If the service is killed, their input closes, and they end.
#[derive(Debug)]
pub(crate) struct Spares {
    program: PathBuf,
    /// A place for each spare. One that is about to start has its place already.
    places: mpsc::Sender<Process>,
    waiting: Mutex<mpsc::Receiver<Process>>,
}

impl Spares {
    /// Prepares the spares of `program`. The first one starts with the first conversion, so that a service without conversions has none.
    pub(crate) fn new(program: PathBuf) -> Self {
        let (places, waiting) = mpsc::channel(SPARES_MAX);
        Self { program, places, waiting: Mutex::new(waiting) }
    }

    /// Runs the program on one request and returns its reply: in a spare, or without one in a process that it starts.
    ///
    /// Dropped midway: the process is killed.
    pub(crate) async fn run(&self, request: &[u8]) -> Result<Vec<u8>, Error> {
        // The time counts from the request, not from the start of a spare.
        timeout(WALL_TIME_MAX, self.outcome(request)).await.map_err(|_| Error::TooSlow)??.reply()
    }

    async fn outcome(&self, request: &[u8]) -> Result<Outcome, Error> {
        let spare = self.take();
        self.refill();
        if let Some(spare) = spare {
            let outcome = spare.converse(request).await?;
            // The system may have killed it while it waited, for its memory. It did not read the request, so the request is not the reason.
            if outcome.is_read {
                return Ok(outcome);
            }
        }
        Process::start(&self.program)?.converse(request).await
    }

    fn take(&self) -> Option<Process> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }

    /// Starts the next spare if a place is free. It uses another thread, because a start holds its thread until the program runs.
    fn refill(&self) {
        let Ok(place) = self.places.clone().try_reserve_owned() else { return };
        let program = self.program.clone();
        drop(spawn_blocking(move || {
            // If this fails, the next conversion starts its own process and reports the error.
            if let Ok(process) = Process::start(&program) {
                drop(place.send(process));
            }
        }));
    }
}
