//! Latency of the main job: a prompt, its text and its tool steps.

pub mod raw;

use super::{
    model::{self, Call, Model, Plan},
    samples::Samples,
    sources,
};
use crate::{
    api::Api,
    turn::{Event, Watch},
};
use futures::future::join_all;
use rpc::v1;
use std::time::{Duration, Instant};

/// The overhead of the main job, without the model's own time.
#[derive(Debug, Default)]
pub struct Latencies {
    /// From the call with the prompt to its model request, in a new session.
    pub prompt_to_model: Samples,
    /// From the last byte of the model to the idle event at the client.
    pub model_to_idle: Samples,
    /// From a chunk of the model to its text at the client. Chunks are further apart than the batching window.
    pub chunk_to_client: Samples,
    /// From the end of a model answer with one `bash true` to the next model request.
    pub tool_step: Samples,
    /// The same for the first step of a session, which also starts its sandbox.
    pub first_tool_step: Samples,
    /// The same for later steps of sessions that run at once.
    pub crowded_tool_step: Samples,
}

/// Steps of a session with calls.
const STEPS: usize = 5;
/// Sessions that run at once.
const CROWD: usize = 8;

/// The kind of sessions that are measured.
struct Kind<'a> {
    api: &'a Api,
    model: &'a Model,
    /// What their files start from; `None`: they have none.
    source: Option<v1::Source>,
}

/// Measures `rounds` sessions of each kind, one after the other. They start from a repository of so many files; 0: they have none.
pub async fn measure(api: &Api, model: &Model, rounds: usize, files: usize) -> Latencies {
    let source = match files {
        0 => None,
        files => Some(sources::upload(api, &sources::repository_of(files)).await),
    };
    let kind = Kind { api, model, source };
    // The first session of a commit reads it.
    kind.text_session(&mut Latencies::default()).await;
    let mut latencies = Latencies::default();
    for _ in 0..rounds {
        kind.text_session(&mut latencies).await;
        kind.tool_session(&mut latencies).await;
    }
    for _ in 0..rounds.div_ceil(CROWD) {
        kind.tool_sessions_at_once(&mut latencies).await;
    }
    latencies
}

impl Kind<'_> {
    async fn text_session(&self, latencies: &mut Latencies) {
        let Self { api, model, .. } = self;
        model.plan(Plan::Text { chunks: 20, apart: Duration::from_millis(40) });
        let session = api.session(self.source.clone()).await;
        let mut watch = Watch::start(api, &session).await;
        let prompted_at = Instant::now();
        let prompt = async { api.prompt(&session, "bench").await.expect("an accepted prompt") };
        let stream = async {
            loop {
                match watch.next().await {
                    Some(Event { kind, .. }) if kind == "session.idle" => return Instant::now(),
                    Some(_) => {}
                    None => {
                        for sent_at in model::stamps(watch.newest_text()) {
                            latencies.chunk_to_client.push(model.began.elapsed().saturating_sub(sent_at));
                        }
                    }
                }
            }
        };
        let (_, idle) = tokio::join!(prompt, stream);
        let log = model.take();
        latencies.prompt_to_model.push(log.requests[0] - prompted_at);
        latencies.model_to_idle.push(idle - log.answers[0]);
    }

    async fn tool_session(&self, latencies: &mut Latencies) {
        let model = self.model;
        model.plan(Plan::Tools { steps: STEPS, call: Call::True });
        self.run_tools().await;
        for session in model.take().sessions.values() {
            let mut steps = session.steps();
            latencies.first_tool_step.push(steps.next().expect("a step"));
            steps.for_each(|step| latencies.tool_step.push(step));
        }
    }

    async fn tool_sessions_at_once(&self, latencies: &mut Latencies) {
        let model = self.model;
        model.plan(Plan::Tools { steps: STEPS, call: Call::True });
        join_all((0..CROWD).map(|_| self.run_tools())).await;
        for session in model.take().sessions.values() {
            session.steps().skip(1).for_each(|step| latencies.crowded_tool_step.push(step));
        }
    }

    /// Runs a session to the end of its first turn.
    async fn run_tools(&self) {
        let api = self.api;
        let session = api.session(self.source.clone()).await;
        let mut watch = Watch::start(api, &session).await;
        api.prompt(&session, "bench").await.expect("an accepted prompt");
        watch.until_idle().await;
    }
}
