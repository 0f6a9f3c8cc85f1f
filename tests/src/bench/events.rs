//! The cost of event delivery. Gateway and worker are separate processes. The model and all clients run in this
//! process, so one clock measures both ends of every span.

mod fanout;
mod idle;
mod latency;
mod resume;
mod writes;

use super::{figure::Figure, ground::Servers};

/// The measurements, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// From chunks of models to clients, many sessions at once.
    Latency,
    /// One session with many subscribers.
    Fanout,
    /// Catching up on missed events.
    Resume,
    /// Many idle subscribers.
    Idle,
    /// The cost of text in Postgres' write-ahead log.
    Writes,
}

/// The size of each measurement.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Sessions whose models stream at once.
    pub sessions: usize,
    /// Chunks of each of their answers.
    pub chunks: usize,
    /// Subscribers of one session.
    pub subscribers: usize,
    /// Chunks of its answer.
    pub spoken: usize,
    /// Events that were missed.
    pub missed: u64,
    /// Number of catch-ups.
    pub rounds: usize,
    /// Subscribers of idle sessions.
    pub idle: usize,
}

impl Sizes {
    /// The sizes for the report.
    pub fn full() -> Self {
        Self {
            sessions: 50,
            chunks: 1_000,
            subscribers: 500,
            spoken: 2_500,
            missed: 10_000,
            rounds: 30,
            idle: 10_000,
        }
    }

    /// Small sizes, to check that every measurement runs.
    pub fn smoke() -> Self {
        Self { sessions: 2, chunks: 20, subscribers: 3, spoken: 20, missed: 100, rounds: 2, idle: 10 }
    }
}

/// Runs one measurement. A failure ends the process with a sentence.
pub async fn measure(what: What, servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    match what {
        What::Latency => latency::measure(servers, sizes).await,
        What::Fanout => fanout::measure(servers, sizes).await,
        What::Resume => resume::measure(servers, sizes).await,
        What::Idle => idle::measure(servers, sizes).await,
        What::Writes => writes::measure(servers, sizes).await,
    }
}
