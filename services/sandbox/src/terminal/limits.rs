//! The limits of terminals.

/// Terminals of a tenant on one machine: eight sessions full of them. The kernel's number for all (`kernel.pty.max` without
/// `kernel.pty.reserve`: 3,072) is that of 48 such tenants. Beyond it: `terminals_too_many`.
pub const TERMINALS_TENANT_MAX: usize = 64;
/// Bytes of a terminal's output that are kept for later readers: about ten thousand full lines. Older ones are dropped.
pub const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// Readers of one terminal, each with a task and a stream. Beyond it: `terminals_too_many`.
pub const READERS_MAX: usize = 16;
/// Bytes of one piece of output for a reader: more than a screen. Each reader has three pieces at most: one that is sent, one that waits and the next one. The
/// 16 readers of a terminal have 1.5 MiB, so a terminal takes 3.5 MiB with its kept output and what waits to be kept, and a tenant 224 MiB.
pub const READER_PIECE_BYTES_MAX: usize = 32 * 1024;
/// Pieces that wait for one reader. Then its task waits, and the program does not.
pub const READER_PIECES_MAX: usize = 1;
/// How long the program at a terminal may run; milliseconds. A day: a forgotten one must not hold its sandbox for ever. Then it is ended.
pub const LIFE_MAX_MS: u64 = 24 * 60 * 60 * 1_000;
