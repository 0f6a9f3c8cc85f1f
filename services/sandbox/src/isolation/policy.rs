//! What a sandbox may use, what it may reach, the user it runs as, and between whom the processors are shared.

use std::{fmt, fs};

/// Files that one process of a sandbox may have open. Opening another one fails in the process.
pub(super) const OPEN_FILES_MAX: u64 = 4_096;

/// The limits of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
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

/// What the kernel shares the processors between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// Tenants: the slices of control groups have weights.
    Tenants,
    /// Sessions, each with a nice value.
    Sessions,
    /// Processes, each with a nice value.
    Processes,
}

impl Scheduling {
    /// Looks at the machine. `has_weights`: control groups there have weights.
    pub(super) fn find(has_weights: bool) -> Self {
        let setting = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        if has_weights {
            Self::Tenants
        } else if setting.is_ok_and(|setting| setting.trim() == "1") {
            Self::Sessions
        } else {
            Self::Processes
        }
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tenants => "shared between tenants (weights of control groups)",
            Self::Sessions => "shared between the sessions of processes (nice values of sessions)",
            Self::Processes => "shared between processes (nice values)",
        })
    }
}
