//! One session that many follow, each over a connection of its own, while its model speaks as fast as those of the measurement of
//! latencies. A fragment has what a model said within one window, so a gateway brings fewer fragments than chunks.

use super::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Target},
        ground::{Ground, Servers},
        model::{self, Model, Plan},
        process::Process,
    },
    turn::Watch,
};
use futures::future::join_all;
use std::time::{Duration, Instant};

/// Time between two chunks of the model.
const APART: Duration = Duration::from_millis(10);

/// Measures how many chunks, and how many fragments, the gateway brings to clients in one second of a core.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    let (gateway, url) = Process::gateway(&ground.stack).await;
    model.plan(Plan::Text { chunks: sizes.spoken, apart: APART });
    let session = ground.stack.session().await;
    let mut watches = vec![];
    for _ in 0..sizes.subscribers {
        watches.push(Watch::start(&ground.stack.api.at(&url), &session).await);
    }
    let (before, begun) = (gateway.cpu_time(), Instant::now());
    ground.stack.api.prompt(&session, "bench").await.expect("an accepted prompt");
    let outcomes = join_all(watches.iter_mut().map(Watch::until_idle)).await;
    assert!(outcomes.iter().all(|outcome| outcome == "done"), "{outcomes:?}");
    let (took, cpu) = (begun.elapsed(), gateway.cpu_time() - before);
    let chunks: usize = watches
        .iter()
        .flat_map(|watch| watch.seen.deltas.values())
        .map(|text| model::stamps(text).count())
        .sum();
    let fragments: usize = watches.iter().flat_map(|watch| watch.seen.pieces.values()).map(Vec::len).sum();
    ground.end().await;
    let per_second = |count: usize, time: Duration| (count as f64 / time.as_secs_f64().max(0.001), "/s");
    let said = (sizes.subscribers * sizes.spoken) as f64;
    let asked = Target::AtLeast(100_000.0);
    vec![
        Figure::number("chunks brought to clients, per gateway core", per_second(chunks, cpu), chunks, asked),
        Figure::number("  in fragments", per_second(fragments, cpu), fragments, Target::None),
        Figure::number("  with all on this machine", per_second(chunks, took), chunks, Target::None),
        Figure::number("  of those said", (100.0 * chunks as f64 / said, "%"), chunks, Target::None),
    ]
}
