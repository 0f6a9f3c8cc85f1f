//! How many pseudo-terminals the commands of one sandbox may open. Each sandbox has a devpts of its own, but the kernel
//! counts all of a machine together, and bubblewrap has no option that limits one sandbox.

use super::processes;
use rustix::{
    fs::CWD,
    mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_string, fspick},
};
use std::io;

/// Terminals of a session. Each takes processes of the sandbox and memory of the service; a person uses fewer. Beyond it:
/// `terminals_too_many`.
pub const TERMINALS_MAX: usize = 8;
/// Terminals of one sandbox: those of people, and those that its commands open (`script`, `tmux`, tests of interactive
/// programs). The kernel's limit for all sandboxes is 3,072. Opening another one fails in the program.
const MAX: usize = 4 * TERMINALS_MAX;

/// Bounds the terminals of a sandbox, which must not run commands yet. `bwrap` is the process that was started for it.
///
/// # Errors
/// When the service may not mount, or the kernel is older than 5.2.
pub(crate) fn bound(bwrap: u32) -> io::Result<()> {
    let inside = processes::first(bwrap)?;
    let devpts = fspick(CWD, format!("/proc/{inside}/root/dev/pts"), FsPickFlags::FSPICK_CLOEXEC)?;
    // An option that is not repeated falls back to the kernel's default; the first two are bubblewrap's.
    for (key, value) in [("mode", "620"), ("ptmxmode", "666"), ("max", &MAX.to_string())] {
        fsconfig_set_string(&devpts, key, value)?;
    }
    Ok(fsconfig_reconfigure(&devpts)?)
}
