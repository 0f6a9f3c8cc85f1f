//! The sizes of the measurements.

use std::time::Duration;

/// The size of each measurement.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Number of sessions whose models stream at once.
    pub sessions: usize,
    /// Number of chunks in each of their answers.
    pub chunks: usize,
    /// Number of subscribers of one session.
    pub subscribers: usize,
    /// Number of chunks in its answer.
    pub answer_chunks: usize,
    /// Time between two of these chunks.
    pub apart: Duration,
    pub missed: u64,
    pub rounds: usize,
    /// Number of subscribers of idle sessions.
    pub idle: usize,
}

impl Sizes {
    /// Returns the sizes for the report.
    pub fn full() -> Self {
        Self {
            sessions: 50,
            chunks: 1_000,
            subscribers: 500,
            answer_chunks: 10_000,
            apart: Duration::from_millis(1),
            missed: 10_000,
            rounds: 30,
            idle: 10_000,
        }
    }

    /// Returns small sizes, to check that every measurement runs. The answer takes a second: a subscriber that is late on a busy machine gets a shorter one whole.
    pub fn smoke() -> Self {
        Self {
            sessions: 2,
            chunks: 20,
            subscribers: 3,
            answer_chunks: 20,
            apart: Duration::from_millis(50),
            missed: 100,
            rounds: 2,
            idle: 10,
        }
    }
}
