//! What a large session costs a small one of another tenant on the same worker, a process of its own, while the large one is
//! loaded, asked, pruned and summed up.

use super::{
    Sizes,
    past::{self, Past, Seen},
};
use crate::{
    Options,
    api::Api,
    bench::{
        Samples,
        figure::{Figure, Target},
        ground::{Ground, Servers},
        model::{Call, Model, Plan},
        process::Process,
    },
};
use rpc::v1::AcceptPromptRequest;
use std::time::Instant;

/// Steps of each turn of the small session.
const STEPS: usize = 20;
/// What a large neighbour may add to a step of the small session; milliseconds.
const ADDED_MS: f64 = 30.0;

/// Measures the small session alone, and beside each of the large ones.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { workers: 0, model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    let worker = Process::worker(&ground.stack, 1);
    let (owner, other) = (&ground.stack.api, ground.stack.other_tenant().await);
    let past = Past { turns: sizes.turns, output_bytes: sizes.output_bytes, seen: Seen::Everything };
    let mut large = vec![];
    for _ in 0..sizes.large {
        large.push(past::session(&ground, owner, &model, past).await);
    }
    let small = other.session(None).await;
    steps(&other, &model, &small).await;
    let mut alone = Samples::default();
    for _ in 0..sizes.rounds {
        alone.extend(steps(&other, &model, &small).await);
    }
    let (mut beside, mut turns) = (Samples::default(), Samples::default());
    for session in &large {
        model.set_aside(session);
        // A turn at whose end old outputs are left out, and then a summary.
        for prompt in [Prompt::Text, Prompt::Compaction] {
            let (owner, session) = (owner.clone(), session.clone());
            let busy = tokio::spawn(async move {
                let begun = Instant::now();
                past::turn(&owner, &session, |it| prompt.write(it)).await;
                begun.elapsed()
            });
            while !busy.is_finished() {
                beside.extend(steps(&other, &model, &small).await);
            }
            turns.push(busy.await.expect("no panic"));
        }
    }
    drop(worker);
    ground.end().await;
    figures(alone, beside, turns)
}

/// What the large session is asked.
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

/// Runs a turn of the small session: from the end of each answer to the next question.
async fn steps(api: &Api, model: &Model, session: &str) -> Samples {
    model.plan(Plan::Tools { steps: STEPS, call: Call::Todos });
    past::turn(api, session, |prompt| prompt.text = "bench".to_owned()).await;
    let seen = model.take();
    seen.answered.iter().zip(&seen.requests[1..]).map(|(answered, next)| *next - *answered).collect()
}

fn figures(alone: Samples, beside: Samples, turns: Samples) -> Vec<Figure> {
    let p99_ms = |samples: &Samples| samples.percentile(99).as_secs_f64() * 1000.0;
    let (added, count) = (p99_ms(&beside) - p99_ms(&alone), beside.count());
    vec![
        Figure::times("step of a small session, alone", alone, Target::None),
        Figure::times("step of a small session beside a large one", beside, Target::None),
        Figure::number("what that adds, p99", (added, "ms"), count, Target::AtMost(ADDED_MS)),
        Figure::times("turn of the large one: outputs left out, or summed up", turns, Target::None),
    ]
}
