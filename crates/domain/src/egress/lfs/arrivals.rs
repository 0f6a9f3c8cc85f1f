//! Objects that one session is bringing and others wait for: what the helpers that bring and wait, and the service that starts them, agree on.

use std::time::Duration;

/// Longest wait for objects of another session. The helper then transfers what it still lacks.
pub const ARRIVALS_WAIT_MAX: Duration = Duration::from_secs(300);
/// The file that is there as long as further objects may come.
pub const RUNNING: &str = "running";
/// The list of the objects that a session brings, in the directory of the objects: a line of each pointer.
pub const WANTED: &str = "wanted";
/// The ending of an object that is still arriving.
pub const PART: &str = "part";
