//! Compares a step at message 5,000 with a step at message 10, alternately on one worker.

use super::sizes::Sizes;
use crate::{
    Options,
    api::Api,
    bench::{
        figure::{Figure, Quantity, Target},
        model::{Call, Model, Plan},
        samples::Samples,
        stored::past::{self, Past, PastView},
        testbed::{Servers, Testbed},
    },
};
use std::time::Instant;

/// Number of steps of a measured turn.
const STEPS: usize = 5;
/// Limit of the duration of a step of a long conversation, relative to a short one.
const AT_MOST: Target = Target::AtMost(1.2);

/// Latencies of the steps of one session.
#[derive(Default)]
struct Latencies {
    /// From the prompt to the first model request.
    begin: Samples,
    /// From the end of an answer that calls a tool to the next model request.
    step: Samples,
    /// From the end of the last answer to the idle event.
    end: Samples,
}

/// Measures a short session, a long session with a summary, and a long session without one.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    let api = &testbed.stack.api;
    let past = |turns, view| Past { turns, output_bytes: 100, view };
    let mut kinds = vec![];
    for (name, past) in [
        ("message 10", past(2, PastView::Summary)),
        ("with a summary", past(sizes.turns, PastView::Summary)),
        ("without a summary", past(sizes.turns, PastView::Everything)),
    ] {
        kinds.push((name, past::session(&testbed, api, &model, past).await, Latencies::default()));
    }
    for round in 0..=sizes.rounds {
        for (_, session, latencies) in &mut kinds {
            // The first turns also open connections.
            let mut unused = Latencies::default();
            measure_turn(api, &model, session, if round == 0 { &mut unused } else { latencies }).await;
        }
    }
    testbed.end().await;
    figures(kinds, 3 * sizes.turns)
}

async fn measure_turn(api: &Api, model: &Model, session: &str, latencies: &mut Latencies) {
    model.plan(Plan::Tools { steps: STEPS, call: Call::Todos });
    let mut watch = past::watch(api, session).await;
    let prompted_at = Instant::now();
    api.prompt(session, "bench").await.expect("an accepted prompt");
    watch.until_idle().await;
    let idle = Instant::now();
    let log = model.take();
    latencies.begin.push(log.requests[0] - prompted_at);
    for (answer, next) in log.answers.iter().zip(&log.requests[1..]) {
        latencies.step.push(*next - *answer);
    }
    latencies.end.push(idle - log.answers[STEPS]);
}

fn figures(kinds: Vec<(&str, String, Latencies)>, messages: usize) -> Vec<Figure> {
    let mut figures = vec![];
    let (_, _, short) = &kinds[0];
    for (name, _, long) in &kinds[1..] {
        // A long request takes longer to send. Only a session with a summary has short requests.
        let target = if *name == "with a summary" { AT_MOST } else { Target::None };
        for (what, long, short) in [
            ("prompt to model request", &long.begin, &short.begin),
            ("tool step", &long.step, &short.step),
            ("answer to idle", &long.end, &short.end),
        ] {
            let name = format!("{what}, {messages} messages, {name} / message 10");
            figures.push(Figure::number(
                name,
                Quantity { value: long.median_ratio(short), unit: "x" },
                long.count(),
                target,
            ));
        }
    }
    for (name, _, latencies) in kinds {
        figures.push(Figure::times(
            format!("{name}: prompt to model request"),
            latencies.begin,
            Target::None,
        ));
        figures.push(Figure::times(format!("{name}: tool step"), latencies.step, Target::None));
        figures.push(Figure::times(format!("{name}: answer to idle"), latencies.end, Target::None));
    }
    figures
}
