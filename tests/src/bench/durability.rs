//! Durability and its cost: takeovers, handovers, fairness with many tenants and with a backlog, the throughput of the
//! ready queue, the memory of a stream, and updates of the control row. Each measurement has a separate stack.

mod backlog;
mod claims;
mod crowd;
mod hot;
mod memory;
pub mod sizes;
mod takeover;

use super::{figure::Figure, testbed::Servers};
use sizes::Sizes;

/// The measurements, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Measure {
    /// Time until another worker continues after a kill.
    Crash,
    /// Time until another worker continues after a SIGTERM.
    Drain,
    /// The effect of other tenants' queued sessions on a fresh prompt.
    Crowd,
    /// The wait of a light tenant for a slot behind the backlog of another.
    Backlog,
    /// Number of sessions that are claimed and finished in a second.
    Claims,
    /// The worker memory of a streaming session.
    Memory,
    /// Share of the writes of a loop that stay on their page.
    Hot,
}

/// Runs one measurement. A failure ends the process with a message.
pub async fn measure(measure: Measure, servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    match measure {
        Measure::Crash => takeover::crash(servers, sizes).await,
        Measure::Drain => takeover::drain(servers, sizes).await,
        Measure::Crowd => crowd::measure(servers, sizes).await,
        Measure::Backlog => backlog::measure(servers, sizes).await,
        Measure::Claims => claims::measure(servers, sizes).await,
        Measure::Memory => memory::measure(servers, sizes).await,
        Measure::Hot => hot::measure(servers, sizes).await,
    }
}
