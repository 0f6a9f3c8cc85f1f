//! How the embedded servers run.

/// How the servers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether Postgres waits for the disk. Off only for tests: a power cut then loses the instance.
    pub fsync: bool,
    /// Connections that Postgres takes at once.
    pub postgres_connections: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { fsync: true, postgres_connections: 200 }
    }
}
