//! The latency from a chunk of a model to its text at a client, while many models stream.

use super::sizes::Sizes;
use crate::{
    Options,
    api::Api,
    bench::{
        figure::{Figure, Quantity, Target},
        machine::process::Process,
        model::{self, Model, Plan},
        samples::Samples,
        testbed::{Servers, Testbed},
    },
    turn::Watch,
};
use futures::future::join_all;
use std::time::{Duration, Instant};

/// Time between two chunks of a model.
const APART: Duration = Duration::from_millis(10);

/// Measures the latency of each chunk.
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
    let mut latencies = Samples::default();
    join_all(streams).await.into_iter().for_each(|samples| latencies.extend(samples));
    let chunks = sizes.sessions * sizes.chunks;
    let rate = chunks as f64 / begun.elapsed().as_secs_f64();
    testbed.end().await;
    vec![
        Figure::number("chunks of all models", Quantity { value: rate, unit: "/s" }, chunks, Target::None),
        Figure::times("chunk to client", latencies, Target::AtMost(15.0)),
    ]
}

/// Returns, for one answer, the latency of each chunk.
async fn stream(api: Api, model: &Model) -> Samples {
    let session = api.session(None).await;
    let mut watch = Watch::start(&api, &session).await;
    api.prompt(&session, "bench").await.expect("an accepted prompt");
    let mut latencies = Samples::default();
    loop {
        match watch.next().await {
            Some(event) if event.kind == "session.idle" => return latencies,
            Some(_) => {}
            None => {
                let now = model.began.elapsed();
                let sent = model::stamps(watch.newest_text());
                latencies.extend(sent.map(|sent_at| now.saturating_sub(sent_at)).collect());
            }
        }
    }
}
