//! Durability and its cost: takeovers, handovers, fairness with many tenants and with a backlog, the throughput of the
//! ready queue, the memory of a stream, and updates of the control row. Each measurement has its own stack.

mod backlog;
mod claims;
pub(super) mod copies;
mod crowd;
mod hot;
mod memory;
mod takeover;

use super::{figure::Figure, ground::Servers};

/// The measurements, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Time until another worker continues after a kill.
    Crash,
    /// Time until another worker continues after a SIGTERM.
    Drain,
    /// The effect of other tenants' queued sessions on a fresh prompt.
    Crowd,
    /// How long a light tenant waits for a slot behind another's backlog.
    Backlog,
    /// Sessions that are claimed and finished in a second.
    Claims,
    /// The worker memory of a streaming session.
    Memory,
    /// Writes of a loop that stay on their page.
    Hot,
}

/// The size of each measurement.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Workers that are killed, and as many that are drained.
    pub rounds: usize,
    /// Sessions in a turn on each of them.
    pub sessions: usize,
    /// Other tenants with a queued session each.
    pub tenants: usize,
    /// Prompts without and with them.
    pub prompts: usize,
    /// Queued sessions of the heavy tenant.
    pub backlog: usize,
    /// Prompts of the light tenant.
    pub light_prompts: usize,
    /// Sessions that are claimed and finished.
    pub claims: usize,
    /// Streams that are open at once.
    pub streams: usize,
    /// Turns of twenty steps.
    pub turns: usize,
}

impl Sizes {
    /// The sizes for the report.
    pub fn full() -> Self {
        Self {
            rounds: 4,
            sessions: 10,
            tenants: 1_000,
            prompts: 300,
            backlog: 10_000,
            light_prompts: 100,
            claims: 10_000,
            streams: 1_000,
            turns: 24,
        }
    }

    /// Small sizes, to check that every measurement runs.
    pub fn smoke() -> Self {
        Self {
            rounds: 1,
            sessions: 2,
            tenants: 3,
            prompts: 2,
            backlog: 40,
            light_prompts: 2,
            claims: 20,
            streams: 4,
            turns: 2,
        }
    }
}

/// Runs one measurement. A failure ends the process with a sentence.
pub async fn measure(what: What, servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    match what {
        What::Crash => takeover::crash(servers, sizes).await,
        What::Drain => takeover::drain(servers, sizes).await,
        What::Crowd => crowd::measure(servers, sizes).await,
        What::Backlog => backlog::measure(servers, sizes).await,
        What::Claims => claims::measure(servers, sizes).await,
        What::Memory => memory::measure(servers, sizes).await,
        What::Hot => hot::measure(servers, sizes).await,
    }
}
