//! The nice value of a session of processes, for kernels that share the processors between sessions ("autogroup"). A session begins with 0,
//! however nice its processes are.

use std::{ffi::CStr, fs::File, io::Write as _};

/// The file that takes the nice value of the session of its reader. Best effort: the kernel accepts one change of all users in 100 ms. A
/// service that runs as root repairs what was lost.
pub(super) const FILE: &CStr = c"/proc/self/autogroup";
/// The largest nice value that the kernel has.
const NICEST: u64 = 19;

/// The nice value of sessions, in digits.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionPriority(Option<[u8; 2]>);

impl SessionPriority {
    /// 0: sessions keep what the kernel gives them.
    pub(super) fn new(nice: u64) -> Self {
        let nice = nice.min(NICEST) as u8;
        Self((nice > 0).then_some([b'0' + nice / 10, b'0' + nice % 10]))
    }

    /// What belongs into the file; `None` if sessions keep what the kernel gives them. Neither allocates nor locks.
    pub(super) fn digits(&self) -> Option<&[u8]> {
        self.0.as_ref().map(<[u8; 2]>::as_slice)
    }

    /// Gives the session of this process the value.
    pub(super) fn apply(self) {
        let file = FILE.to_str().ok().and_then(|path| File::options().write(true).open(path).ok());
        if let Some((mut file, digits)) = file.zip(self.digits()) {
            drop(file.write_all(digits));
        }
    }
}
