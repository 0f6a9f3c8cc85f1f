//! Starts `flotilla-unpack`, which turns one layer into a directory. The layer is foreign content: the program has walls of its own, and
//! runs as a user that owns nothing but layers, where the service may choose one.

use super::child::ChildSetup;
use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::Path,
    process::Stdio,
};
use tokio::process::{Child, Command};

/// One layer to be unpacked.
#[derive(Debug)]
pub struct UnpackSpec<'a> {
    pub program: &'a Path,
    /// The directory that it fills.
    pub directory: &'a Path,
    /// The user that it runs as; `None`: the service's own.
    pub owner: Option<u32>,
    /// What it is told of the layer.
    pub arguments: Vec<String>,
}

/// Starts the program. Its input takes the blob; its output is one line with the result. Dropping it kills it. Blocks.
///
/// # Errors
/// Those of the file system and of fork.
pub fn start(spec: UnpackSpec<'_>) -> io::Result<Child> {
    let program = File::open(spec.program)?;
    let directory = OwnedFd::from(File::open(spec.directory)?);
    // Other users may not be able to reach the program or the directory by their paths, so both are opened before the user changes.
    let mut command = std::process::Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg(".").args(spec.arguments).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = ChildSetup {
        stage: None,
        groups: Vec::new(),
        directory: Some(directory),
        kept: Vec::new(),
        uid: spec.owner,
        // The program limits itself.
        file_bytes_max: u64::MAX,
        is_nice: true,
    };
    child.prepare(&mut command);
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command.spawn()
}
