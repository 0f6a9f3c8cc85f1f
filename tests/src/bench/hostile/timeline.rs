//! The stages of one sample of the other tenant, as its subscriber sees them.

use crate::{bench::samples::Samples, turn::Event};
use std::time::{Duration, Instant};

/// The stages, in order. Each ends when the client learns of its end.
pub(super) const STAGES: [&str; 5] = [
    "prompt to its acceptance",
    "acceptance to the step (claim, workspace)",
    "step to the tool call (model)",
    "tool call to its start",
    "start to its result (sandbox)",
];
/// The stage that ends when the gateway has accepted the prompt. No event tells of it.
pub(super) const ACCEPTED: usize = 0;

/// When each stage of a sample ended, from its prompt.
#[derive(Debug)]
pub(super) struct Timeline {
    prompted_at: Instant,
    ends: [Option<Duration>; STAGES.len()],
}

impl Timeline {
    /// The prompt is sent now.
    pub(super) fn begin() -> Self {
        Self { prompted_at: Instant::now(), ends: Default::default() }
    }

    /// Notes the end of a stage and of those before it.
    pub(super) fn note(&mut self, stage: usize) {
        let now = self.prompted_at.elapsed();
        for end in &mut self.ends[..=stage] {
            end.get_or_insert(now);
        }
    }

    /// Notes the stage that an event ends, if it ends one. Returns whether it is the last.
    pub(super) fn note_event(&mut self, event: &Event) -> bool {
        let part = &event.properties["part"];
        let stage = match (part["type"].as_str(), part["state"]["status"].as_str()) {
            (Some("step-start"), _) => 1,
            (Some("tool"), Some("pending")) => 2,
            (Some("tool"), Some("running")) => 3,
            (Some("tool"), Some("completed")) => 4,
            _ => return false,
        };
        self.note(stage);
        stage + 1 == STAGES.len()
    }

    /// From the prompt to the result. A sample that never came to its result lasts until now.
    pub(super) fn total(&self) -> Duration {
        self.ends[STAGES.len() - 1].unwrap_or_else(|| self.prompted_at.elapsed())
    }
}

/// How long each stage took.
pub(super) fn by_stage(timelines: &[Timeline]) -> [Samples; STAGES.len()] {
    std::array::from_fn(|stage| {
        let lasted = |timeline: &Timeline| {
            let began = stage.checked_sub(1).map_or(Some(Duration::ZERO), |before| timeline.ends[before])?;
            Some(timeline.ends[stage]? - began)
        };
        timelines.iter().filter_map(lasted).collect()
    })
}
