//! The walls of this process: its limits, and the system calls that it may make. The process raises them before it reads the
//! request. Content that takes the process over then finds no file, no network, no other process and no key.
//!
//! The process needs no signal when its parent dies: its pipes end, also while it waits for its request, and the limit of processor time
//! ends a computation. A process that waits uses no processor time, so that this limit counts the same work however long it waited.

use convert_client::bounds::{CPU_SECONDS_MAX, MEMORY_BYTES_MAX};
use nix::sys::resource::Resource;

/// Descriptors that may be open: the three of every program, and a few for its start. Opening another one fails.
const DESCRIPTORS_MAX: u64 = 16;
/// The nice value: a conversion gets a third of what a thread of a service gets when both want all. It is short and a call waits for it, so it
/// is less nice than a command in a sandbox.
const NICE: i32 = 5;

/// Raises every wall.
///
/// # Errors
/// If one does not stand; then nothing must be converted.
pub(crate) fn raise() -> anyhow::Result<()> {
    process_walls::part()?;
    // This is not a wall. The system refuses it to a program whose parent is even nicer.
    let _ = rustix::process::setpriority_process(None, NICE);
    process_walls::lower_all(&[
        (Resource::RLIMIT_AS, MEMORY_BYTES_MAX),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX),
        (Resource::RLIMIT_NPROC, 0),
    ])?;
    // The signal at the first limit tells the parent why the process died.
    process_walls::lower(Resource::RLIMIT_CPU, CPU_SECONDS_MAX, CPU_SECONDS_MAX + 1)?;
    process_walls::allow_only(&[])
}
