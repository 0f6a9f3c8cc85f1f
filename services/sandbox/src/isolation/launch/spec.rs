//! The description of a sandbox to start: its program, the files that it sees, and its rights.

use crate::isolation::{
    policy::Network,
    root::{image::Root, mount::Mount},
};
use domain::{ids::TenantId, session::environment::SandboxOptions};
use shares::Permit;
use std::os::fd::OwnedFd;

/// What runs in a sandbox.
#[derive(Debug)]
pub enum Program {
    /// `flotilla-init` as PID 1, which speaks over this socket.
    Init(OwnedFd),
    /// A bash script and its arguments; its standard streams are pipes (input: nothing). Bubblewrap is PID 1.
    Script(&'static str, Vec<String>),
}

/// One sandbox to be started.
#[derive(Debug)]
pub struct LaunchSpec {
    pub program: Program,
    /// The tenant for which it runs.
    pub tenant: TenantId,
    /// The session's user; not used when sandboxes run as the service's user.
    pub uid: u32,
    /// What it sees at `/`.
    pub root: Root,
    /// What it sees in addition to `/`. One of these mounts is /workspace, where it starts.
    pub mounts: Vec<Mount>,
    pub network: Network,
    /// What its programs may also do.
    pub options: SandboxOptions,
    /// The right to run it, given back when it is gone.
    pub permit: Option<Permit>,
}
