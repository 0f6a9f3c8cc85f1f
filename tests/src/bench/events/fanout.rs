//! One session with many subscribers, each over a separate connection. Its model is as fast as those of the latency
//! measurement. A delta contains the chunks of one window, so a gateway sends fewer deltas than chunks.

use super::sizes::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        model::{self, Model, Plan},
        process::Process,
        testbed::{Servers, Testbed},
    },
    turn::Watch,
};
use futures::future::join_all;
use std::time::{Duration, Instant};

/// Time between two chunks of the model.
const APART: Duration = Duration::from_millis(10);

/// Measures how many chunks, and how many deltas, the gateway delivers in one second of CPU time.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    let (gateway, url) = Process::gateway(&testbed.stack).await;
    model.plan(Plan::Text { chunks: sizes.answer_chunks, apart: APART });
    let session = testbed.stack.session().await;
    let mut watches = vec![];
    for _ in 0..sizes.subscribers {
        watches.push(Watch::start(&testbed.stack.api.at(&url), &session).await);
    }
    let (before, begun) = (gateway.cpu_time(), Instant::now());
    testbed.stack.api.prompt(&session, "bench").await.expect("an accepted prompt");
    let outcomes = join_all(watches.iter_mut().map(Watch::until_idle)).await;
    assert!(outcomes.iter().all(|outcome| outcome == "done"), "{outcomes:?}");
    let (took, cpu) = (begun.elapsed(), gateway.cpu_time() - before);
    let chunks: usize = watches
        .iter()
        .flat_map(|watch| watch.transcript.deltas.values())
        .map(|text| model::stamps(text).count())
        .sum();
    let deltas: usize = watches.iter().flat_map(|watch| watch.transcript.pieces.values()).map(Vec::len).sum();
    testbed.end().await;
    let per_second = |count: usize, time: Duration| {
        let value = count as f64 / time.as_secs_f64().max(0.001);
        Quantity { value, unit: "/s" }
    };
    let sent = (sizes.subscribers * sizes.answer_chunks) as f64;
    let target = Target::AtLeast(100_000.0);
    vec![
        Figure::number(
            "chunks delivered to clients, per gateway core",
            per_second(chunks, cpu),
            chunks,
            target,
        ),
        Figure::number("  deltas", per_second(deltas, cpu), deltas, Target::None),
        Figure::number("  per second of elapsed time", per_second(chunks, took), chunks, Target::None),
        Figure::number(
            "  share of the chunks of the model",
            Quantity { value: 100.0 * chunks as f64 / sent, unit: "%" },
            chunks,
            Target::None,
        ),
    ]
}
