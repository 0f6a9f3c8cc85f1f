//! The cost for a new prompt of many other tenants whose queued sessions cannot run.

use super::sizes::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        model::{Call, Model, Plan},
        samples::Samples,
        stored::copies::{self, Owners},
        testbed::{Servers, Testbed},
    },
    turn::Watch,
};
use std::time::Instant;

/// Measures the same prompts without and with the other tenants.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    // The first turns also open connections.
    prompt_to_model(&testbed, &model, 3).await;
    let alone = prompt_to_model(&testbed, &model, sizes.prompts).await;
    let template = testbed.stack.session().await;
    let crowd = copies::make(&testbed, &template, Owners::Separate, sizes.tenants).await;
    copies::enqueue(&testbed.stack.bus().await, &crowd, 0).await;
    let crowded = prompt_to_model(&testbed, &model, sizes.prompts).await;
    let waiting: i64 = sqlx::query_scalar("select count(*) from session_run where phase = 1")
        .fetch_one(&mut testbed.postgres().await)
        .await
        .expect("the queue");
    assert_eq!(usize::try_from(waiting).expect("few"), sizes.tenants, "the other tenants still wait");
    testbed.end().await;
    let milliseconds = |samples: &Samples, percent| samples.percentile(percent).as_secs_f64() * 1000.0;
    let added = |percent| {
        let value = milliseconds(&crowded, percent) - milliseconds(&alone, percent);
        Quantity { value, unit: "ms" }
    };
    let (p50, p99, count) = (added(50), added(99), crowded.count());
    let name = |case: &str| format!("prompt to model request, {case}");
    vec![
        Figure::times(name("empty queue"), alone, Target::None),
        Figure::times(name(&format!("{} other tenants wait", sizes.tenants)), crowded, Target::None),
        Figure::number("time that they add, p50", p50, count, Target::None),
        Figure::number("time that they add, p99", p99, count, Target::AtMost(30.0)),
    ]
}

async fn prompt_to_model(testbed: &Testbed, model: &Model, prompts: usize) -> Samples {
    let mut samples = Samples::default();
    for _ in 0..prompts {
        model.plan(Plan::Tools { steps: 0, call: Call::True });
        let session = testbed.stack.session().await;
        let mut watch = Watch::start(&testbed.stack.api, &session).await;
        let prompted_at = Instant::now();
        testbed.stack.api.prompt(&session, "bench").await.expect("an accepted prompt");
        watch.until_idle().await;
        samples.push(model.take().requests[0] - prompted_at);
    }
    samples
}
