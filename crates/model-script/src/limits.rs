//! The bounds of the scripted model server.

/// Bytes of one request: enough for a long conversation with images. HTTP answers 413 to a longer one.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Requests that a journal keeps, the newest ones.
pub const JOURNAL_REQUESTS_MAX: usize = 1_024;
/// Bytes of request bodies that a journal keeps, the newest ones.
pub const JOURNAL_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Steps whose attempts are counted, the newest ones. Every test uses fewer at once.
pub const COUNTERS_MAX: usize = 16_384;
/// Bytes of a tool's output that `{{last_tool_result}}` shows. The rest is cut.
pub const TOOL_RESULT_BYTES_MAX: usize = 2_000;
/// Steps of one rule or prompt. A script with more is refused.
pub const STEPS_MAX: usize = 1_000;
/// Default characters of a piece: about what real providers send.
pub const CHUNK_CHARS: usize = 12;
/// Longest delay before a piece; milliseconds. `@stall` covers longer ones. A script with a longer one is refused.
pub const DELAY_MAX_MS: u64 = 60_000;
