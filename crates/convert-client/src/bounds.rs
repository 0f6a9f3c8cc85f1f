//! The bounds of one conversion. The program sets its own walls from them before it reads its request; the services hold those
//! that only the outside can hold.

use std::time::Duration;

/// Processor time of one conversion; seconds. It is the measure of work, because a busy machine does not shorten it. Ordinary
/// conversions need a few milliseconds, an ordinary page 0.3 s for each MiB in a debug build. Beyond it: `conversion_too_slow`.
pub const CPU_SECONDS_MAX: u64 = 1;
/// Wall time of one conversion. It only ends what waits instead of working, on a machine that gives it no processor. Beyond it:
/// `conversion_too_slow`.
pub const WALL_TIME_MAX: Duration = Duration::from_secs(5);
/// Time that a conversion waits for its turn: one that waits longer has many others before it. Beyond it: `conversion_busy`.
pub const TURN_WAIT_MAX: Duration = Duration::from_secs(5);
/// Processes of each kind of turn that wait for a request. One is enough for calls that follow each other, because the next one starts while
/// it works. A conversion that finds none starts its own.
pub const SPARES_MAX: usize = 1;
/// Address space of one conversion; bytes. The tree of a page takes about ninety times its size. Beyond it: `conversion_too_large`.
pub const MEMORY_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Bytes of a request: a file and the arguments of a call that changes it. Beyond it: `conversion_too_large`.
pub const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of a reply: a file with its diff. Beyond it: `conversion_too_large`.
pub const REPLY_BYTES_MAX: usize = 12 * 1024 * 1024;
/// Bytes of a diff for clients. A longer one is cut.
pub const DIFF_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one pattern of a shell command, which a person may read. A longer one is cut.
pub const PATTERN_BYTES_MAX: usize = 4 * 1024;
