//! The benchmark measures: a small run of it gives every figure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use e2e::{Options, Stack, bench, bench::model::Model};

#[tokio::test]
async fn every_figure_is_measured() {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let stack = Stack::with(options).await;
    let latencies = bench::measure(&stack.api, &model, 1).await;
    assert_eq!(latencies.prompt_to_model.count(), 1);
    assert_eq!(latencies.model_to_idle.count(), 1);
    assert_eq!(latencies.chunk_to_client.count(), 20, "each chunk once");
    assert_eq!(latencies.tool_step.count(), 4);
}
