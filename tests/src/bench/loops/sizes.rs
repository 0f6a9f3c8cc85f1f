//! The sizes of the measurements.

/// The size of each measurement.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Numbers of turns in the past of sessions that the model receives whole; three messages each.
    pub lengths: [usize; 4],
    /// Number of turns in a long session; three messages each.
    pub turns: usize,
    /// Size of the tool output in each of these turns, in sessions with large outputs; bytes.
    pub output_bytes: usize,
    /// Number of measured turns for each kind of session.
    pub rounds: usize,
    /// Number of large sessions that run with a small one.
    pub large: usize,
    /// Number of files in a repository.
    pub files: usize,
    /// Number of files in a repository in which one has changed.
    pub looked_at: usize,
}

impl Sizes {
    /// Returns the sizes for the report: 5,000 messages with 50 MB of output.
    pub fn full() -> Self {
        Self {
            lengths: [3, 66, 333, 1_667],
            turns: 1_667,
            output_bytes: 30_000,
            rounds: 30,
            large: 4,
            files: 10_000,
            looked_at: 40_000,
        }
    }

    /// Returns small sizes, to check that every measurement runs.
    pub fn smoke() -> Self {
        Self {
            lengths: [1, 2, 3, 4],
            turns: 20,
            output_bytes: 9_000,
            rounds: 2,
            large: 1,
            files: 20,
            looked_at: 50,
        }
    }
}
