//! The terminal of a command. It is made in the sandbox's own devpts, which holds no terminals of other sessions. The
//! pump reads its output like any other.

use super::service::Failure;
use domain::limits::TERMINAL_INPUT_BYTES_MAX;
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    pty::{Winsize, openpty},
};
use sandbox_wire::v1::{FailureCode, request};
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write as _},
    os::fd::{AsRawFd as _, OwnedFd},
};
use wire::v1::TerminalSize;

/// Keys that wait for the command to read.
#[derive(Debug, Default)]
pub(super) struct Keys(VecDeque<u8>);

/// Makes a terminal. Returns the init's end, which does not block, and the command's end. Neither becomes the
/// controlling terminal of the init.
pub(super) fn open(size: &TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let ends = openpty(Some(&window(size)), None)?;
    for fd in [&ends.master, &ends.slave] {
        fcntl(fd, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    }
    fcntl(&ends.master, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    Ok((ends.master, ends.slave))
}

impl Keys {
    pub(super) fn is_waiting(&self) -> bool {
        !self.0.is_empty()
    }

    /// Sends the keys that the terminal takes now.
    pub(super) fn send(&mut self, mut terminal: &File) {
        while self.is_waiting() {
            match terminal.write(self.0.as_slices().0) {
                Ok(sent) if sent > 0 => drop(self.0.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // If the terminal is full, poll says when to continue. If it is gone, the pump is about to see the
                // command's end.
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Types keys, or resizes the terminal.
    pub(super) fn take(&mut self, terminal: &File, body: request::Body) -> Result<(), Failure> {
        match body {
            request::Body::Keystrokes(typed) => {
                if self.0.len() + typed.data.len() > TERMINAL_INPUT_BYTES_MAX {
                    let text = "the program at the terminal does not read what is typed";
                    return Err(Failure::new(FailureCode::TerminalInputFull, text));
                }
                self.0.extend(typed.data);
                self.send(terminal);
                Ok(())
            }
            request::Body::Resize(resize) => resize_to(terminal, &window(&resize.size.unwrap_or_default()))
                .map_err(|error| {
                    Failure::new(FailureCode::Internal, format!("change the size of a terminal: {error}"))
                }),
            _ => Err(Failure::new(FailureCode::Internal, "this request is not for a terminal")),
        }
    }
}

fn window(size: &TerminalSize) -> Winsize {
    let side = |characters: u32| u16::try_from(characters).unwrap_or(u16::MAX);
    Winsize { ws_row: side(size.rows), ws_col: side(size.columns), ws_xpixel: 0, ws_ypixel: 0 }
}

#[allow(unsafe_code)] // No safe wrapper sets the size of a terminal.
fn resize_to(terminal: &File, window: &Winsize) -> io::Result<()> {
    // SAFETY: the kernel reads one `struct winsize`, which is borrowed until it has.
    let status = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, std::ptr::from_ref(window)) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
