//! The cost of long conversations and of many files. The past of a session must not slow down its next step, nor another
//! session. Each measurement has a separate stack.

mod files;
mod history;
mod load;
mod lone_worker;
mod looks;
mod neighbour;
pub mod sizes;
mod steps;

use super::{figure::Figure, testbed::Servers};
use sizes::Sizes;

/// The measurements, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Measure {
    /// A step of a long conversation, compared with a step of a short one.
    Steps,
    /// Conversations of several lengths that the model receives whole, until it has the request.
    History,
    /// Loading a long conversation and lowering it, until the model has the request.
    Load,
    /// The effect of a large session on a small one on the same worker.
    Neighbour,
    /// The cost of snapshots of many files for a step.
    Files,
    /// The cost of a look at the files of a session when one of many has changed.
    Looks,
}

/// Runs one measurement. A failure ends the process with a message.
pub async fn measure(measure: Measure, servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    match measure {
        Measure::Steps => steps::measure(servers, sizes).await,
        Measure::History => history::measure(servers, sizes).await,
        Measure::Load => load::measure(servers, sizes).await,
        Measure::Neighbour => neighbour::measure(servers, sizes).await,
        Measure::Files => files::measure(servers, sizes).await,
        Measure::Looks => looks::measure(servers, sizes).await,
    }
}
