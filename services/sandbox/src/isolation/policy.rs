//! What a sandbox may use, what it may reach, and the user it runs as.

/// The limits of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u32,
    /// CPU, hundredths of a core.
    pub cpu_percent: u32,
    /// Workspace, and one file, bytes.
    pub disk_bytes: u64,
    /// Each tmpfs, bytes.
    pub tmp_bytes: u64,
}

/// What a sandbox can reach on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Its own empty loopback.
    None,
    /// What the service can reach. Only for the helper that clones from a remote server.
    Host,
}

/// Which user a sandbox runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The service is root: each session has a user of its own.
    PerSession,
    /// The service is not root: its own. An escape from a sandbox would then be the service.
    Service,
}

impl User {
    /// What this process may do.
    pub fn find() -> Self {
        if nix::unistd::geteuid().is_root() { Self::PerSession } else { Self::Service }
    }
}
