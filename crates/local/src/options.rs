//! Options of the embedded servers.

/// Options of the embedded servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether Postgres waits for the disk. Turn it off only for tests: a power failure then loses the instance.
    pub fsync: bool,
    /// Maximum simultaneous Postgres connections.
    pub postgres_connections: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { fsync: true, postgres_connections: 200 }
    }
}
