//! A stack whose only worker is a process of its own: its memory is measured, or nothing else of the stack may take its time.

use crate::{
    Options,
    api::Api,
    bench::{
        machine::process::Process,
        model::{Call, Model, Plan},
        samples::Samples,
        stored::past,
        testbed::{Servers, Testbed},
    },
};
use std::time::Instant;

/// The stack, its worker and its model.
pub(super) struct LoneWorker {
    pub(super) testbed: Testbed,
    pub(super) worker: Process,
    pub(super) model: Model,
}

impl LoneWorker {
    pub(super) async fn start(servers: &Servers) -> Self {
        let model = Model::start().await;
        let options = Options { workers: 0, model_url: Some(model.url.clone()), ..Options::default() };
        let testbed = Testbed::start(servers, options).await;
        let worker = Process::worker(&testbed.stack, 1);
        Self { testbed, worker, model }
    }

    pub(super) fn api(&self) -> &Api {
        &self.testbed.stack.api
    }

    /// Runs a turn without tools, and measures from its prompt to its model request.
    pub(super) async fn measure_turn(&self, session: &str, begin: &mut Samples) {
        self.model.plan(Plan::Tools { steps: 0, call: Call::Todos });
        let mut watch = past::watch(self.api(), session).await;
        let prompted_at = Instant::now();
        self.api().prompt(session, "bench").await.expect("an accepted prompt");
        watch.until_idle().await;
        begin.push(self.model.take().requests[0] - prompted_at);
    }

    pub(super) async fn end(self) {
        drop(self.worker);
        self.testbed.end().await;
    }
}
