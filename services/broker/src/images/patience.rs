//! How long the broker waits for registries and for its callers.

use std::time::Duration;

/// Time for one small answer, from the request to its last byte.
const DOCUMENT: Duration = Duration::from_secs(60);
/// Longest silence of a registry before and in an answer.
const SILENCE: Duration = Duration::from_secs(30);
/// Time for a whole layer: 10 GiB at 3 MB/s.
const LAYER: Duration = Duration::from_secs(3_600);
/// Longest time in which the caller takes no bytes of a layer. A sandbox that unpacks a large file still takes some.
const CALLER: Duration = Duration::from_secs(60);
/// Pause before the second try; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause that a registry may ask for. Beyond it: `registry_busy`.
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// Longest wait for one of the places of a tenant or of the process.
const PERMIT: Duration = Duration::from_secs(60);

/// The waits. Tests shorten those that they want to see the end of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For one small answer.
    pub document: Duration,
    /// For the next bytes of a registry.
    pub silence: Duration,
    /// For all bytes of a layer.
    pub layer: Duration,
    /// For a caller that does not read.
    pub caller: Duration,
    /// Before the second try.
    pub first_pause: Duration,
    /// At most between two tries.
    pub pause_max: Duration,
    /// For a place among the pulls.
    pub permit: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            document: DOCUMENT,
            silence: SILENCE,
            layer: LAYER,
            caller: CALLER,
            first_pause: FIRST_PAUSE,
            pause_max: PAUSE_MAX,
            permit: PERMIT,
        }
    }
}
