//! Loading a long conversation and lowering it for a model: the time and the memory from a prompt until the model has the
//! request. A worker keeps what it has loaded of a small conversation for the next turn. The whole large one is loaded again for each prompt.

use super::{lone_worker::LoneWorker, sizes::Sizes};
use crate::bench::{
    figure::{Figure, Quantity, Target},
    samples::Samples,
    stored::past::{self, Past, PastView},
    testbed::Servers,
};

/// Limit of the time to a request whose past is in a summary; milliseconds.
const AT_MOST: Target = Target::AtMost(150.0);
/// Number of turns in the past of a short session.
const SHORT: usize = 2;

/// Measures a short session, a long session with a summary, and a long session that the model receives whole.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let lone = LoneWorker::start(servers).await;
    let worker = &lone.worker;
    let mut figures = vec![];
    for (turns, view, name) in [
        (SHORT, PastView::Summary, "with a summary"),
        (sizes.turns, PastView::Summary, "with a summary"),
        (sizes.turns, PastView::Everything, "received whole"),
    ] {
        let past = Past { turns, output_bytes: sizes.output_bytes, view };
        let session = past::session(&lone.testbed, lone.api(), &lone.model, past).await;
        // The first turn also opens connections.
        lone.measure_turn(&session, &mut Samples::default()).await;
        worker.reset_peak();
        let before = worker.peak_bytes();
        let mut begin = Samples::default();
        lone.measure_turn(&session, &mut begin).await;
        let growth = worker.peak_bytes().saturating_sub(before) as f64 / 1_000_000.0;
        for _ in 1..sizes.rounds {
            lone.measure_turn(&session, &mut begin).await;
        }
        let megabytes = (turns * sizes.output_bytes) as f64 / 1_000_000.0;
        let name = format!("load and lower {} messages, {megabytes:.1} MB, {name}", 3 * (turns + 1));
        let target = if view == PastView::Summary { AT_MOST } else { Target::None };
        figures.push(Figure::times(name, begin, target));
        let growth = Quantity { value: growth, unit: "MB" };
        figures.push(Figure::number("  growth of the worker's resident memory", growth, 1, Target::None));
    }
    lone.end().await;
    figures
}
