//! The cost of event delivery. Gateway and worker are separate processes. The model and all clients run in this
//! process, so one clock measures both ends of every span.

mod fanout;
mod idle;
mod latency;
mod resume;
pub mod sizes;
mod sse;
mod writes;

use super::{figure::Figure, testbed::Servers};
use sizes::Sizes;

/// The measurements, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Measure {
    /// Latency from the chunks of models to clients, with many sessions at once.
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

/// Runs one measurement. A failure ends the process with a message.
pub async fn measure(measure: Measure, servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    match measure {
        Measure::Latency => latency::measure(servers, sizes).await,
        Measure::Fanout => fanout::measure(servers, sizes).await,
        Measure::Resume => resume::measure(servers, sizes).await,
        Measure::Idle => idle::measure(servers, sizes).await,
        Measure::Writes => writes::measure(servers, sizes).await,
    }
}
