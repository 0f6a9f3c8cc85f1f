//! The sizes of the measurements.

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
    /// Number of missed events.
    pub missed: u64,
    /// Number of catch-ups.
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
            missed: 10_000,
            rounds: 30,
            idle: 10_000,
        }
    }

    /// Returns small sizes, to check that every measurement runs.
    pub fn smoke() -> Self {
        Self { sessions: 2, chunks: 20, subscribers: 3, answer_chunks: 20, missed: 100, rounds: 2, idle: 10 }
    }
}
