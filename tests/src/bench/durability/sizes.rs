//! The sizes of the measurements.

/// The size of each measurement.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Number of workers that are killed, and of workers that are drained.
    pub rounds: usize,
    /// Number of active sessions on each of them.
    pub sessions: usize,
    /// Number of other tenants with one queued session each.
    pub tenants: usize,
    /// Number of prompts without and with them.
    pub prompts: usize,
    /// Number of queued sessions of the heavy tenant.
    pub backlog: usize,
    /// Number of prompts of the light tenant.
    pub light_prompts: usize,
    /// Number of sessions that are claimed and finished.
    pub claims: usize,
    /// Number of streams that are open at once.
    pub streams: usize,
    /// Number of turns of twenty steps.
    pub turns: usize,
}

impl Sizes {
    /// Returns the sizes for the report.
    pub fn full() -> Self {
        Self {
            rounds: 4,
            sessions: 10,
            tenants: 1_000,
            prompts: 300,
            backlog: 10_000,
            light_prompts: 100,
            claims: 10_000,
            streams: 1_000,
            turns: 24,
        }
    }

    /// Returns small sizes, to check that every measurement runs.
    pub fn smoke() -> Self {
        Self {
            rounds: 1,
            sessions: 2,
            tenants: 3,
            prompts: 2,
            backlog: 40,
            light_prompts: 2,
            claims: 20,
            streams: 4,
            turns: 2,
        }
    }
}
