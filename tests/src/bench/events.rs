//! What it costs to bring events to clients. Gateway and worker are processes of their own; the model and all clients are this
//! one, so that both ends of every span are read from one clock.

mod fanout;
mod idle;
mod latency;
mod resume;
mod writes;

use super::{figure::Figure, ground::Servers};

/// What is measured, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// From chunks of models to clients, many sessions at once.
    Latency,
    /// One session that many follow.
    Fanout,
    /// Catching up on what was missed.
    Resume,
    /// Many who follow, and nothing happens.
    Idle,
    /// What text costs in the log of Postgres.
    Writes,
}

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Sessions whose models stream at once.
    pub sessions: usize,
    /// Chunks of each of their answers.
    pub chunks: usize,
    /// Who follows one session.
    pub subscribers: usize,
    /// Chunks of its answer.
    pub spoken: usize,
    /// Events that were missed.
    pub missed: u64,
    /// Times that they are caught up on.
    pub rounds: usize,
    /// Who follows sessions in which nothing happens.
    pub idle: usize,
}

impl Sizes {
    /// Those of the report.
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

    /// Just enough to see that everything is measured.
    pub fn smoke() -> Self {
        Self { sessions: 2, chunks: 20, subscribers: 3, spoken: 20, missed: 100, rounds: 2, idle: 10 }
    }
}

/// Measures one thing. What cannot be measured ends the process with a sentence.
pub async fn measure(what: What, servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    match what {
        What::Latency => latency::measure(servers, sizes).await,
        What::Fanout => fanout::measure(servers, sizes).await,
        What::Resume => resume::measure(servers, sizes).await,
        What::Idle => idle::measure(servers, sizes).await,
        What::Writes => writes::measure(servers, sizes).await,
    }
}
