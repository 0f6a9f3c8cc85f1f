//! How long and how hard the attack is.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The sizes of an attack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sizes {
    /// How long the other tenant is measured alone.
    pub alone: Duration,
    /// The attack before the first sample.
    pub warm_up: Duration,
    /// How long the other tenant is measured under attack.
    pub attacked: Duration,
    /// Repetitions at once of each attack on the gateway.
    pub parallel: usize,
    /// Files of a large workspace of the hostile tenant.
    pub files: usize,
    /// Files of the repository of the other tenant.
    pub other_files: usize,
    /// Bytes of the file in a note.
    pub note_bytes: usize,
    /// Connections that never send anything.
    pub idle_connections: usize,
    pub backlog: usize,
    /// Attacks that are left out, by name, to see what each costs.
    pub without: Vec<String>,
}

impl Sizes {
    /// The full attack or a small one, without some of the attacks.
    pub fn of(is_small: bool, without: &[String]) -> Self {
        let sizes = if is_small { Self::smoke() } else { Self::full() };
        Self { without: without.to_vec(), ..sizes }
    }

    /// Four minutes.
    fn full() -> Self {
        Self {
            alone: Duration::from_secs(60),
            warm_up: Duration::from_secs(15),
            attacked: Duration::from_secs(180),
            parallel: 4,
            files: 50_000,
            other_files: 2_000,
            note_bytes: 7 << 20,
            idle_connections: 1_000,
            backlog: 500,
            without: vec![],
        }
    }

    pub fn smoke() -> Self {
        Self {
            alone: Duration::from_millis(500),
            warm_up: Duration::ZERO,
            attacked: Duration::from_secs(1),
            parallel: 1,
            files: 10,
            other_files: 3,
            note_bytes: 1 << 10,
            idle_connections: 5,
            backlog: 2,
            without: vec![],
        }
    }
}
