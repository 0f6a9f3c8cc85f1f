//! Small runs of the benchmarks produce every figure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use e2e::{
    Options, Stack,
    bench::{
        durability::{self, Measure, measure},
        events, files, hostile, loops,
        machine::usage::{Extent, MeasuredProcess},
        main_job,
        model::Model,
        peer, profile,
        sandbox::{broker, environments, repositories},
        testbed::Servers,
        week,
    },
    opencode::OpenCode,
};

#[tokio::test]
async fn the_main_job_is_measured() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let stack = Stack::with(options).await;
    let latencies = main_job::measure(&stack.api, &model, 1, 3).await;
    assert_eq!(latencies.prompt_to_model.count(), 1);
    assert_eq!(latencies.model_to_idle.count(), 1);
    assert_eq!(latencies.chunk_to_client.count(), 20, "each chunk arrives once");
    assert_eq!(latencies.tool_step.count(), 4);
    assert_eq!(latencies.first_tool_step.count(), 1);
    assert_eq!(latencies.crowded_tool_step.count(), 8 * 4, "each session has its own steps");
}

/// Checks that a small run gives this number of figures, each with at least one sample.
async fn check(kind: Measure, figures: usize) {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(measure(kind, &Servers::Shared, &durability::sizes::Sizes::smoke())).await;
    assert_eq!(measured.len(), figures, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn takeovers_are_measured() {
    check(Measure::Crash, 2).await;
}

#[tokio::test]
async fn handovers_are_measured() {
    check(Measure::Drain, 1).await;
}

#[tokio::test]
async fn a_crowd_is_measured() {
    check(Measure::Crowd, 4).await;
}

#[tokio::test]
async fn a_backlog_is_measured() {
    check(Measure::Backlog, 2).await;
}

#[tokio::test]
async fn claims_are_measured() {
    check(Measure::Claims, 2).await;
}

#[tokio::test]
async fn the_memory_of_streams_is_measured() {
    check(Measure::Memory, 3).await;
}

#[tokio::test]
async fn updates_of_the_control_row_are_measured() {
    check(Measure::Hot, 3).await;
}

/// As [`check`], for long conversations.
async fn check_loops(kind: loops::Measure, figures: usize) {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(loops::measure(kind, &Servers::Shared, &loops::sizes::Sizes::smoke())).await;
    assert_eq!(measured.len(), figures, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn steps_of_a_long_conversation_are_measured() {
    check_loops(loops::Measure::Steps, 15).await;
}

#[tokio::test]
async fn the_length_of_a_conversation_is_measured() {
    check_loops(loops::Measure::History, 12).await;
}

#[tokio::test]
async fn loading_a_long_conversation_is_measured() {
    check_loops(loops::Measure::Load, 6).await;
}

#[tokio::test]
async fn a_large_neighbour_is_measured() {
    check_loops(loops::Measure::Neighbour, 4).await;
}

#[tokio::test]
async fn snapshots_of_files_are_measured() {
    check_loops(loops::Measure::Files, 3).await;
}

#[tokio::test]
async fn looks_at_files_are_measured() {
    check_loops(loops::Measure::Looks, 5).await;
}

/// As [`check`], for event delivery.
async fn check_events(kind: events::Measure, figures: usize) {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(events::measure(kind, &Servers::Shared, &events::sizes::Sizes::smoke())).await;
    assert_eq!(measured.len(), figures, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn the_latency_of_chunks_is_measured() {
    check_events(events::Measure::Latency, 2).await;
}

#[tokio::test]
async fn fan_out_is_measured() {
    check_events(events::Measure::Fanout, 8).await;
}

#[tokio::test]
async fn catching_up_is_measured() {
    check_events(events::Measure::Resume, 1).await;
}

#[tokio::test]
async fn idle_subscribers_are_measured() {
    check_events(events::Measure::Idle, 4).await;
}

#[tokio::test]
async fn the_log_of_text_is_measured() {
    check_events(events::Measure::Writes, 2).await;
}

/// The process with all services of a test stack.
fn this_process() -> MeasuredProcess {
    MeasuredProcess { name: "all services".to_owned(), pid: std::process::id(), extent: Extent::Process }
}

#[tokio::test]
async fn a_hostile_tenant_is_measured() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let stack = Stack::start().await;
    let victim = hostile::Victim {
        gateway_url: stack.gateway_url().to_owned(),
        operator_key: e2e::settings::OPERATOR_KEY.to_owned(),
        services: vec![this_process()],
        servers: vec![],
    };
    let measured = Box::pin(hostile::measure(&victim, &hostile::sizes::Sizes::smoke())).await;
    assert_eq!(measured.len(), 48, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn sessions_and_steps_ask_no_more_of_postgres_than_before() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    // What a loop writes together depends on time, so a busy machine gets further tries. A regression fails all of them.
    for last in [false, false, true] {
        let profile = Box::pin(profile::measure(&Servers::Shared, &profile::sizes::Sizes::smoke())).await;
        assert_eq!(profile.figures.len(), 20, "{:?}", profile.figures);
        let missed: Vec<_> = profile.figures.iter().filter(|figure| !figure.is_met()).collect();
        if missed.is_empty() {
            return;
        }
        // After a change on purpose, `./dev bench profile --json` prints the counts for tests/src/bench/profile/committed.json.
        assert!(!last, "{missed:?}, {:?}", profile.statements);
    }
}

#[tokio::test]
async fn the_cpu_time_of_processes_is_measured() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let stack = Stack::with(options).await;
    let (processes, sizes) = ([this_process()], profile::sizes::Sizes::smoke());
    let measured = Box::pin(profile::cpu::measure(&stack.api, &model, &processes, &sizes)).await;
    assert_eq!(measured.len(), 5, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn opencode_is_measured_next_to_flotilla() {
    let Some(opencode) = OpenCode::find() else {
        e2e::left_out::skip("opencode-ai is not installed; `./dev test` installs it with npm");
        return;
    };
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let model = Model::start().await;
    let stack =
        Stack::with(Options { model_url: Some(model.url.clone()), slots: 8, ..Options::default() }).await;
    let own = peer::Server {
        url: stack.gateway_url().to_owned(),
        key: Some(stack.api.key.clone()),
        directory: "bench".to_owned(),
        pid: std::process::id(),
    };
    let sizes = peer::Sizes::smoke();
    peer::project(&stack.api, &own.directory, sizes.files).await;
    let (_running, other) = peer::opencode(&opencode, &model.url, sizes.files).await.unwrap();
    let measured = Box::pin(peer::measure(&other, &own, &model, &sizes)).await;
    assert_eq!(measured.len(), 46, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn a_week_is_lived_through() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(week::measure(&Servers::Shared, &week::Sizes::smoke())).await;
    assert_eq!(measured.len(), 9, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.is_met()), "{measured:?}");
}

#[tokio::test]
async fn environments_are_measured() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(environments::measure(&environments::Sizes::smoke())).await;
    if measured.is_empty() {
        return e2e::left_out::skip("this machine cannot join the layers of images");
    }
    assert_eq!(measured.len(), 6, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn what_the_broker_adds_is_measured() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(broker::measure(&broker::Sizes::smoke())).await;
    assert_eq!(measured.len(), 7, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn files_of_sessions_are_measured() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(files::measure(&files::Sizes::smoke(), |_| ())).await;
    // Fourteen figures of each kind, and five beside sessions without files.
    assert_eq!(measured.len(), 14 + 2 * 19, "{measured:?}");
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}

#[tokio::test]
async fn sessions_on_repositories_are_measured() {
    if e2e::is_left_out(&["redis", "nats"], "it measures a whole stack") {
        return;
    }
    let measured = Box::pin(repositories::measure(&repositories::Sizes::smoke())).await;
    match measured.len() {
        8 => e2e::left_out::leave_unchecked("this machine cannot join the layers of images"),
        count => assert_eq!(count, 10, "{measured:?}"),
    }
    assert!(measured.iter().all(|figure| figure.count() > 0), "{measured:?}");
}
