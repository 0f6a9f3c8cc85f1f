//! The threads of the init.

use std::{io, thread};

const THREAD_STACK_BYTES: usize = 4 * 1024 * 1024;

/// Starts a thread that runs as long as the process.
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).stack_size(THREAD_STACK_BYTES).spawn(body).map(drop)
}
