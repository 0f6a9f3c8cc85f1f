//! Latency of the main job, measured from outside. One process is both the model and the client, so one clock measures
//! both ends of every span.

pub mod durability;
pub mod events;
pub mod figure;
pub mod ground;
pub mod loops;
pub mod model;
pub mod process;
pub mod raw;

use crate::{
    api::Api,
    turn::{Seen, Watch},
};
use model::{Call, Model, Plan};
use std::time::{Duration, Instant};

/// Latencies of one kind.
#[derive(Debug, Default)]
pub struct Samples(Vec<Duration>);

impl FromIterator<Duration> for Samples {
    fn from_iter<T: IntoIterator<Item = Duration>>(samples: T) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl Samples {
    /// Adds one.
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// Adds all of another.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Gives the sample below which `percent` of all are; zero without samples.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(rank).copied().unwrap_or_default()
    }

    /// The longest; zero without samples.
    pub fn max(&self) -> Duration {
        self.percentile(100)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The overhead of the main job, without the model's own time.
#[derive(Debug, Default)]
pub struct Latencies {
    /// From the prompt's call to the arrival of its model request, in a fresh session.
    pub prompt_to_model: Samples,
    /// From the last byte of the model to the idle event at the client.
    pub model_to_idle: Samples,
    /// From a chunk of the model to its text at the client. Chunks are further apart than the batching window.
    pub chunk_to_client: Samples,
    /// From the end of a model answer with one `bash true` to the next model request.
    pub tool_step: Samples,
}

/// Measures `rounds` sessions of each kind, one after the other.
pub async fn measure(api: &Api, model: &Model, rounds: usize) -> Latencies {
    let mut latencies = Latencies::default();
    for _ in 0..rounds {
        text_session(api, model, &mut latencies).await;
        tool_session(api, model, &mut latencies).await;
    }
    latencies
}

async fn text_session(api: &Api, model: &Model, latencies: &mut Latencies) {
    model.plan(Plan::Text { chunks: 20, apart: Duration::from_millis(40) });
    let session = api.session(None).await;
    let mut watch = Watch::start(api, &session).await;
    let asked = Instant::now();
    let prompt = async { api.prompt(&session, "bench").await.expect("an accepted prompt") };
    let stream = async {
        loop {
            match watch.next().await {
                Some(Seen { kind, .. }) if kind == "session.idle" => return Instant::now(),
                Some(_) => {}
                None => {
                    for sent in model::stamps(watch.newest_text()) {
                        latencies.chunk_to_client.push(model.began.elapsed().saturating_sub(sent));
                    }
                }
            }
        }
    };
    let (_, idle) = tokio::join!(prompt, stream);
    let seen = model.take();
    latencies.prompt_to_model.push(seen.requests[0] - asked);
    latencies.model_to_idle.push(idle - seen.answered[0]);
}

async fn tool_session(api: &Api, model: &Model, latencies: &mut Latencies) {
    model.plan(Plan::Tools { steps: 5, call: Call::True });
    let session = api.session(None).await;
    let mut watch = Watch::start(api, &session).await;
    api.prompt(&session, "bench").await.expect("an accepted prompt");
    watch.until_idle().await;
    let seen = model.take();
    // The first command also starts the session's sandbox.
    for (answered, next) in seen.answered.iter().zip(seen.requests.iter().skip(1)).skip(1) {
        latencies.tool_step.push(*next - *answered);
    }
}
