//! The latency from a chunk of a model to its text at a client, while many models stream.

use super::sizes::Sizes;
use crate::{
    Options,
    api::Api,
    bench::{
        figure::{Figure, Quantity, Target},
        model::{self, Model, Plan},
        process::Process,
        samples::Samples,
        testbed::{Servers, Testbed},
    },
    turn::Watch,
};
use domain::limits::DELTA_WINDOW_MS;
use futures::future::join_all;
use std::time::{Duration, Instant};

/// Time between two chunks of a model.
const APART: Duration = Duration::from_millis(10);

/// Measures the latency in addition to the window in which a worker collects chunks: the first chunk of a delta waits for
/// the whole window.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let slots = u32::try_from(sizes.sessions).expect("few sessions");
    let options = Options { workers: 0, slots, model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    testbed.raise_limit(&testbed.stack.api.tenant_id).await;
    let (_gateway, url) = Process::gateway(&testbed.stack).await;
    let _worker = Process::worker(&testbed.stack, 1);
    model.plan(Plan::Text { chunks: sizes.chunks, apart: APART });
    let begun = Instant::now();
    let streams = (0..sizes.sessions).map(|_| stream(testbed.stack.api.at(&url), &model));
    let (mut whole, mut beyond) = (Samples::default(), Samples::default());
    for (first, last) in join_all(streams).await {
        whole.extend(last);
        beyond.extend(first);
    }
    let chunks = sizes.sessions * sizes.chunks;
    let rate = chunks as f64 / begun.elapsed().as_secs_f64();
    testbed.end().await;
    vec![
        Figure::number("chunks of all models", Quantity { value: rate, unit: "/s" }, chunks, Target::None),
        Figure::times("chunk to client, beyond the window", beyond, Target::AtMost(15.0)),
        Figure::times("chunk to client", whole, Target::None),
    ]
}

/// Returns, for one answer, the latency of the first chunk of each delta beyond the window, and the latency of each chunk.
async fn stream(api: Api, model: &Model) -> (Samples, Samples) {
    let session = api.session(None).await;
    let mut watch = Watch::start(&api, &session).await;
    api.prompt(&session, "bench").await.expect("an accepted prompt");
    let (mut beyond, mut whole) = (Samples::default(), Samples::default());
    loop {
        match watch.next().await {
            Some(event) if event.kind == "session.idle" => return (beyond, whole),
            Some(_) => {}
            None => {
                let now = model.began.elapsed();
                let took: Vec<Duration> =
                    model::stamps(watch.newest_text()).map(|sent_at| now.saturating_sub(sent_at)).collect();
                if let Some(first) = took.first() {
                    beyond.push(first.saturating_sub(Duration::from_millis(DELTA_WINDOW_MS)));
                }
                whole.extend(took.into_iter().collect());
            }
        }
    }
}
