//! What it costs a fresh prompt that many other tenants have queued sessions that cannot run.

use super::{
    Sizes,
    copies::{self, Owners},
};
use crate::{
    Options,
    bench::{
        Samples,
        figure::{Figure, Target},
        ground::{Ground, Servers},
        model::{Call, Model, Plan},
    },
    turn::Watch,
};
use std::time::Instant;

/// Measures the same prompts without and with the others.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    // The first turns also open connections.
    prompt_to_model(&ground, &model, 3).await;
    let alone = prompt_to_model(&ground, &model, sizes.prompts).await;
    let template = ground.stack.session().await;
    let crowd = copies::make(&ground, &template, Owners::EachItsOwn, sizes.tenants).await;
    copies::enqueue(&ground.stack.bus().await, &crowd, 0).await;
    let crowded = prompt_to_model(&ground, &model, sizes.prompts).await;
    let waiting: i64 = sqlx::query_scalar("select count(*) from session_run where phase = 1")
        .fetch_one(&mut ground.postgres().await)
        .await
        .expect("the queue");
    assert_eq!(usize::try_from(waiting).expect("few"), sizes.tenants, "the others still wait");
    ground.end().await;
    let milliseconds = |samples: &Samples, percent| samples.percentile(percent).as_secs_f64() * 1000.0;
    let beyond = |percent| (milliseconds(&crowded, percent) - milliseconds(&alone, percent), "ms");
    let (p50, p99, count) = (beyond(50), beyond(99), crowded.count());
    let name = |what: &str| format!("prompt to model request, {what}");
    vec![
        Figure::times(name("empty queue"), alone, Target::None),
        Figure::times(name(&format!("{} other tenants wait", sizes.tenants)), crowded, Target::None),
        Figure::number("what they add, p50", p50, count, Target::None),
        Figure::number("what they add, p99", p99, count, Target::AtMost(30.0)),
    ]
}

async fn prompt_to_model(ground: &Ground, model: &Model, prompts: usize) -> Samples {
    let mut samples = Samples::default();
    for _ in 0..prompts {
        model.plan(Plan::Tools { steps: 0, call: Call::True });
        let session = ground.stack.session().await;
        let mut watch = Watch::start(&ground.stack.api, &session).await;
        let asked = Instant::now();
        ground.stack.api.prompt(&session, "bench").await.expect("an accepted prompt");
        watch.until_idle().await;
        samples.push(model.take().requests[0] - asked);
    }
    samples
}
