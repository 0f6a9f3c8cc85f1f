//! How long a light tenant waits for a slot while another tenant has a long backlog and keeps all slots busy.

use super::sizes::Sizes;
use crate::{
    Options,
    api::Api,
    bench::{
        figure::{Figure, Target},
        samples::Samples,
        stored::copies::{self, Owners},
        testbed::{Servers, Testbed},
    },
    turn::Watch,
};
use std::time::{Duration, Instant};

/// Number of slots of the only worker. The heavy tenant may use all of them.
const SLOTS: u32 = 8;
/// Number of steps of a heavy session. Without yielding, it would free its slot only after the last one.
const STEPS: usize = 10;
/// Duration of the model call of one of them; milliseconds.
const MODEL_MS: u64 = 300;

const ALL_SLOTS_BUSY: &str = "select count(*) = 8 from session_run where phase = 2";
/// Returns the durations of the steps of the heavy sessions; seconds.
const STEP_LENGTHS: &str = "select extract(epoch from at - began)::float8 from (
    select at, properties, lag(at) over (partition by session_id order by seq) as began from session_event
     where session_id like $1 and (properties like '%\"type\":\"step-start\"%' or properties like '%\"type\":\"step-finish\"%')) steps
  where properties like '%\"type\":\"step-finish\"%' and began is not null";

/// Measures prompts of the light tenant, one after the other.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let mut testbed =
        Testbed::start(servers, Options { workers: 0, slots: SLOTS, ..Options::default() }).await;
    let template = testbed.stack.session().await;
    testbed.stack.api.prompt(&template, &heavy_prompt()).await.expect("an accepted prompt");
    let heavy = copies::make(&testbed, &template, Owners::Same, sizes.backlog).await;
    copies::enqueue(&testbed.stack.bus().await, &heavy, domain::limits::TENANT_RUNNING_MAX).await;
    testbed.stack.add_worker().await;
    let light = testbed.stack.other_tenant().await;
    testbed.until_sql("all slots are busy", ALL_SLOTS_BUSY).await;
    let waits = admissions(&light, sizes.light_prompts).await;
    let mut postgres = testbed.postgres().await;
    let lengths: Vec<f64> = sqlx::query_scalar(STEP_LENGTHS)
        .bind(format!("{template}c%"))
        .fetch_all(&mut postgres)
        .await
        .expect("the durations of steps");
    let left: i64 = sqlx::query_scalar("select count(*) from session_run where phase = 1")
        .fetch_one(&mut postgres)
        .await
        .expect("the backlog");
    assert!(left > 0, "the backlog is not empty at the end");
    testbed.end().await;
    let steps: Samples = lengths.into_iter().map(Duration::from_secs_f64).collect();
    let step_ms = steps.percentile(50).as_secs_f64() * 1000.0;
    let wait = format!("light tenant, prompt to loop.started, {left} of another still queued");
    vec![
        Figure::times(
            format!("a heavy step: {MODEL_MS} ms of the model, {STEPS} steps, {SLOTS} slots"),
            steps,
            Target::None,
        ),
        Figure::times(wait, waits, Target::AtMost(step_ms)),
    ]
}

fn heavy_prompt() -> String {
    // One chunk for each answer: the delay applies to each chunk.
    let mut prompt = format!("@delay {MODEL_MS}\n@chunk 100000\n");
    for step in 1..STEPS {
        let todos = serde_json::json!({"todos": [{"content": format!("step {step}"), "status": "pending", "priority": "low"}]});
        prompt.push_str(&format!("@tool todowrite {todos}\n"));
    }
    prompt + "@text over"
}

async fn admissions(light: &Api, prompts: usize) -> Samples {
    let mut samples = Samples::default();
    for _ in 0..prompts {
        let session = light.session(None).await;
        let mut watch = Watch::start(light, &session).await;
        let prompted_at = Instant::now();
        light.prompt(&session, "@text quick").await.expect("an accepted prompt");
        watch.until(|event| event.kind == "flotilla.loop.started").await;
        samples.push(prompted_at.elapsed());
        watch.until_idle().await;
    }
    samples
}
