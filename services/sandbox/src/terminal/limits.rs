//! The limits of terminals.

/// Terminals of a session. Each takes processes of the sandbox and memory of the service; a person uses fewer. Beyond it:
/// `terminals_too_many`.
pub const TERMINALS_MAX: usize = 8;
/// Terminals of a tenant on one machine: eight sessions full of them. The kernel's number for all (`kernel.pty.max` without
/// `kernel.pty.reserve`: 3,072) is that of 48 such tenants. Beyond it: `terminals_too_many`.
pub const TERMINALS_TENANT_MAX: usize = 64;
/// Bytes of a terminal's output that are kept for later readers: about ten thousand full lines. Older ones are dropped.
pub const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// Readers of one terminal, each with a task and a stream. Beyond it: `terminals_too_many`.
pub const READERS_MAX: usize = 16;
/// How long the program at a terminal may run; milliseconds. A day: a forgotten one must not hold its sandbox for ever. Then it is ended.
pub const LIFE_MAX_MS: u64 = 24 * 60 * 60 * 1_000;
