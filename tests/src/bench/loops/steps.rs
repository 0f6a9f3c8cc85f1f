//! A step at message 5,000 against one at message 10, by turns, on one worker.

use super::{
    Sizes,
    past::{self, Past, Seen},
    ratio,
};
use crate::{
    Options,
    api::Api,
    bench::{
        Samples,
        figure::{Figure, Target},
        ground::{Ground, Servers},
        model::{Call, Model, Plan},
    },
};
use std::time::Instant;

/// Steps of a turn that is measured.
const STEPS: usize = 5;
/// How much longer a step of a long conversation may take.
const AT_MOST: Target = Target::AtMost(1.2);

/// Latencies of the steps of one session.
#[derive(Default)]
struct Latencies {
    /// From the prompt to the first question.
    begin: Samples,
    /// From the end of an answer that calls a tool to the next question.
    step: Samples,
    /// From the end of the last answer to the idle event.
    end: Samples,
}

/// Measures a short session, a long one that was summed up, and a long one of which the model sees everything.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    let api = &ground.stack.api;
    let past = |turns, seen| Past { turns, output_bytes: 100, seen };
    let mut kinds = vec![];
    for (name, past) in [
        ("message 10", past(2, Seen::Summary)),
        ("summed up", past(sizes.turns, Seen::Summary)),
        ("all seen", past(sizes.turns, Seen::Everything)),
    ] {
        kinds.push((name, past::session(&ground, api, &model, past).await, Latencies::default()));
    }
    for round in 0..=sizes.rounds {
        for (_, session, latencies) in &mut kinds {
            // The first turns also open connections.
            let mut unused = Latencies::default();
            measure_turn(api, &model, session, if round == 0 { &mut unused } else { latencies }).await;
        }
    }
    ground.end().await;
    figures(kinds, 3 * sizes.turns)
}

async fn measure_turn(api: &Api, model: &Model, session: &str, latencies: &mut Latencies) {
    model.plan(Plan::Tools { steps: STEPS, call: Call::Todos });
    let mut watch = past::watch(api, session).await;
    let asked = Instant::now();
    api.prompt(session, "bench").await.expect("an accepted prompt");
    watch.until_idle().await;
    let idle = Instant::now();
    let seen = model.take();
    latencies.begin.push(seen.requests[0] - asked);
    for (answered, next) in seen.answered.iter().zip(&seen.requests[1..]) {
        latencies.step.push(*next - *answered);
    }
    latencies.end.push(idle - seen.answered[STEPS]);
}

fn figures(kinds: Vec<(&str, String, Latencies)>, messages: usize) -> Vec<Figure> {
    let mut figures = vec![];
    let (_, _, short) = &kinds[0];
    for (name, _, long) in &kinds[1..] {
        // What a model is sent takes its time; a summary is there so that it is little.
        let target = if *name == "summed up" { AT_MOST } else { Target::None };
        for (what, long, short) in [
            ("prompt to question", &long.begin, &short.begin),
            ("tool step", &long.step, &short.step),
            ("answer to idle", &long.end, &short.end),
        ] {
            let name = format!("{what}, {messages} messages, {name} / message 10");
            figures.push(Figure::number(name, (ratio(long, short), "x"), long.count(), target));
        }
    }
    for (name, _, latencies) in kinds {
        figures.push(Figure::times(format!("{name}: prompt to question"), latencies.begin, Target::None));
        figures.push(Figure::times(format!("{name}: tool step"), latencies.step, Target::None));
        figures.push(Figure::times(format!("{name}: answer to idle"), latencies.end, Target::None));
    }
    figures
}
