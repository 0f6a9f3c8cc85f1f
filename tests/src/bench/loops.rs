//! The cost of long conversations and many files in the loop. A step must not pay for the session's past again, and
//! neither must another session. Each measurement has its own stack.

mod files;
mod neighbour;
pub(super) mod past;
mod steps;

use super::{Samples, figure::Figure, ground::Servers};

/// The measurements, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// A step of a long conversation against one of a short one.
    Steps,
    /// The effect of a large session on a small one on the same worker.
    Neighbour,
    /// The cost of snapshots of many files for a step.
    Files,
}

/// The size of each measurement.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Turns of a long session; three messages each.
    pub turns: usize,
    /// Bytes of the tool's output in each of them, where that is large.
    pub output_bytes: usize,
    /// Times that it is loaded, and turns that are measured of each kind of session.
    pub rounds: usize,
    /// Large sessions beside a small one.
    pub large: usize,
    /// Files of a repository.
    pub files: usize,
}

impl Sizes {
    /// Those of the report: 5,000 messages with 50 MB of output.
    pub fn full() -> Self {
        Self { turns: 1_667, output_bytes: 30_000, rounds: 30, large: 4, files: 10_000 }
    }

    /// Just enough to see that everything is measured.
    pub fn smoke() -> Self {
        Self { turns: 20, output_bytes: 9_000, rounds: 2, large: 1, files: 20 }
    }
}

/// Runs one measurement. A failure ends the process with a sentence.
pub async fn measure(what: What, servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    match what {
        What::Steps => steps::measure(servers, sizes).await,
        What::Neighbour => neighbour::measure(servers, sizes).await,
        What::Files => files::measure(servers, sizes).await,
    }
}

/// How many times as long the half of some took as the half of others.
fn ratio(some: &Samples, others: &Samples) -> f64 {
    some.percentile(50).as_secs_f64() / others.percentile(50).as_secs_f64()
}
