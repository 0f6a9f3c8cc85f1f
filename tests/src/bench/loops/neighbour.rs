//! The cost of a large session for a small session of another tenant on the same worker, which is a separate process. The
//! large session is loaded, prompted, pruned and summarised meanwhile.

use super::{lone_worker::LoneWorker, sizes::Sizes};
use crate::{
    api::Api,
    bench::{
        figure::{Figure, Quantity, Target},
        model::{Call, Model, Plan},
        samples::Samples,
        stored::past::{self, Past, PastView},
        testbed::Servers,
    },
};
use rpc::v1::AcceptPromptRequest;
use std::time::Instant;

/// Number of steps of each turn of the small session.
const STEPS: usize = 20;
/// Limit of the time that a large session adds to a step of the small session; milliseconds.
const ADDED_MS: f64 = 30.0;

/// Measures the small session alone, and while each of the large sessions runs.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let lone = LoneWorker::start(servers).await;
    let (owner, model) = (lone.api(), &lone.model);
    let other = lone.testbed.stack.other_tenant().await;
    let past = Past { turns: sizes.turns, output_bytes: sizes.output_bytes, view: PastView::Everything };
    let mut large = vec![];
    for _ in 0..sizes.large {
        large.push(past::session(&lone.testbed, owner, model, past).await);
    }
    let small = other.session(None).await;
    steps(&other, model, &small).await;
    let mut alone = Samples::default();
    for _ in 0..sizes.rounds {
        alone.extend(steps(&other, model, &small).await);
    }
    let (mut during, mut turns) = (Samples::default(), Samples::default());
    for session in &large {
        model.ignore(session);
        // A turn that prunes old outputs at its end, and then a summary.
        for prompt in [Prompt::Text, Prompt::Compaction] {
            let (owner, session) = (owner.clone(), session.clone());
            let busy = tokio::spawn(async move {
                let begun = Instant::now();
                past::turn(&owner, &session, |it| prompt.write(it)).await;
                begun.elapsed()
            });
            while !busy.is_finished() {
                during.extend(steps(&other, model, &small).await);
            }
            turns.push(busy.await.expect("no panic"));
        }
    }
    lone.end().await;
    figures(alone, during, turns)
}

/// The prompts to the large session.
#[derive(Debug, Clone, Copy)]
enum Prompt {
    Text,
    Compaction,
}

impl Prompt {
    fn write(self, prompt: &mut AcceptPromptRequest) {
        match self {
            Self::Text => prompt.text = "on".to_owned(),
            Self::Compaction => past::compaction(prompt),
        }
    }
}

/// Runs a turn of the small session. Measures from the end of each answer to the next model request.
async fn steps(api: &Api, model: &Model, session: &str) -> Samples {
    model.plan(Plan::Tools { steps: STEPS, call: Call::Todos });
    past::turn(api, session, |prompt| prompt.text = "bench".to_owned()).await;
    let log = model.take();
    log.answers.iter().zip(&log.requests[1..]).map(|(answer, next)| *next - *answer).collect()
}

fn figures(alone: Samples, during: Samples, turns: Samples) -> Vec<Figure> {
    let p99_ms = |samples: &Samples| samples.percentile(99).as_secs_f64() * 1000.0;
    let (added, count) = (p99_ms(&during) - p99_ms(&alone), during.count());
    vec![
        Figure::times("step of a small session, alone", alone, Target::None),
        Figure::times("step of a small session during a turn of a large one", during, Target::None),
        Figure::number(
            "time that the large session adds, p99",
            Quantity { value: added, unit: "ms" },
            count,
            Target::AtMost(ADDED_MS),
        ),
        Figure::times("turn of the large session: pruned or summarised", turns, Target::None),
    ]
}
