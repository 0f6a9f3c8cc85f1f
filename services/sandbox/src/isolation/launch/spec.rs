//! The description of a sandbox to start: its program, the files that it sees, and its rights.

use crate::isolation::{policy::Network, root::image::Root};
use domain::{ids::TenantId, session::environment::SandboxOptions};
use shares::Share;
use std::{os::fd::OwnedFd, path::PathBuf};

/// What runs in a sandbox.
#[derive(Debug)]
pub enum Program {
    /// `flotilla-init` as PID 1, which speaks over this socket.
    Init(OwnedFd),
    /// A bash script and its arguments; its standard streams are pipes (input: nothing). Bubblewrap is PID 1.
    Script(&'static str, Vec<String>),
}

/// A file or directory of the machine that the sandbox sees.
#[derive(Debug, Clone)]
pub struct Mount {
    /// The path on this machine.
    pub source: PathBuf,
    /// The path inside. Never below another mount that the tenant writes.
    pub inside: &'static str,
    /// How the sandbox sees it.
    pub access: MountAccess,
}

/// What a sandbox may do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountAccess {
    /// Read it.
    Read,
    /// Read it, unless it is removed before the sandbox starts. The sandbox then has no such path.
    ReadIfPresent,
    /// Read it and write to it.
    Write,
}

impl Mount {
    /// Shows `source` read-only.
    pub fn read(source: impl Into<PathBuf>, inside: &'static str) -> Self {
        Self { source: source.into(), inside, access: MountAccess::Read }
    }

    /// Shows `source` read-only, unless another task removes it before the sandbox starts.
    pub fn read_if_present(source: impl Into<PathBuf>, inside: &'static str) -> Self {
        Self { source: source.into(), inside, access: MountAccess::ReadIfPresent }
    }

    /// Shows `source` to be written.
    pub fn write(source: impl Into<PathBuf>, inside: &'static str) -> Self {
        Self { source: source.into(), inside, access: MountAccess::Write }
    }
}

/// One sandbox to be started.
#[derive(Debug)]
pub struct LaunchSpec {
    /// What runs in it.
    pub program: Program,
    /// The tenant for which it runs.
    pub tenant: TenantId,
    /// The session's user; not used when sandboxes run as the service's user.
    pub uid: u32,
    /// What it sees at `/`.
    pub root: Root,
    /// What it sees in addition to `/`. One of these mounts is /workspace, where it starts.
    pub mounts: Vec<Mount>,
    /// What it can reach.
    pub network: Network,
    /// What its programs may also do.
    pub options: SandboxOptions,
    /// The right to run it, given back when it is gone.
    pub share: Option<Share>,
}
