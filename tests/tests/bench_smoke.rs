//! The benchmark measures: a small run of it gives every figure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, missing_docs)]

use e2e::{
    Options, Stack, bench,
    bench::{
        durability::{Sizes, What, measure},
        events,
        ground::Servers,
        loops,
        model::Model,
    },
};

#[tokio::test]
async fn every_figure_is_measured() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let stack = Stack::with(options).await;
    let latencies = bench::measure(&stack.api, &model, 1).await;
    assert_eq!(latencies.prompt_to_model.count(), 1);
    assert_eq!(latencies.model_to_idle.count(), 1);
    assert_eq!(latencies.chunk_to_client.count(), 20, "each chunk once");
    assert_eq!(latencies.tool_step.count(), 4);
}

/// Fails unless a small run gives so many figures, each of at least one thing.
async fn check(what: What, figures: usize) {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(measure(what, &Servers::OfTests, &Sizes::smoke())).await;
    assert_eq!(measured.len(), figures, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn take_overs_are_measured() {
    check(What::Crash, 2).await;
}

#[tokio::test]
async fn hand_overs_are_measured() {
    check(What::Drain, 1).await;
}

#[tokio::test]
async fn a_crowd_is_measured() {
    check(What::Crowd, 4).await;
}

#[tokio::test]
async fn a_backlog_is_measured() {
    check(What::Backlog, 2).await;
}

#[tokio::test]
async fn claims_are_measured() {
    check(What::Claims, 2).await;
}

#[tokio::test]
async fn the_memory_of_streams_is_measured() {
    check(What::Memory, 3).await;
}

#[tokio::test]
async fn updates_of_the_control_row_are_measured() {
    check(What::Hot, 3).await;
}

/// As [`check`], for long conversations.
async fn check_loops(what: loops::What, figures: usize) {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(loops::measure(what, &Servers::OfTests, &loops::Sizes::smoke())).await;
    assert_eq!(measured.len(), figures, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn steps_of_a_long_conversation_are_measured() {
    check_loops(loops::What::Steps, 15).await;
}

#[tokio::test]
async fn a_large_neighbour_is_measured() {
    check_loops(loops::What::Neighbour, 4).await;
}

#[tokio::test]
async fn states_of_files_are_measured() {
    check_loops(loops::What::Files, 3).await;
}

/// As [`check`], for events on their way to clients.
async fn check_events(what: events::What, figures: usize) {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(events::measure(what, &Servers::OfTests, &events::Sizes::smoke())).await;
    assert_eq!(measured.len(), figures, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn chunks_on_their_way_are_measured() {
    check_events(events::What::Latency, 3).await;
}

#[tokio::test]
async fn many_followers_are_measured() {
    check_events(events::What::Fanout, 4).await;
}

#[tokio::test]
async fn catching_up_is_measured() {
    check_events(events::What::Resume, 1).await;
}

#[tokio::test]
async fn idle_followers_are_measured() {
    check_events(events::What::Idle, 4).await;
}

#[tokio::test]
async fn the_log_of_text_is_measured() {
    check_events(events::What::Writes, 2).await;
}
