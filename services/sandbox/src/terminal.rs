//! One terminal: what was written to it last, who reads along, and the end of its program. All of it is in memory: a terminal
//! ends with its sandbox, and so with this service.

pub mod attach;
pub mod registry;
pub mod shares;

use crate::{
    code::Code,
    error::Error,
    sandbox::{Event, Sandbox},
    session::Use,
    wire::{self, request},
};
use bytes::Bytes;
use rpc::v1::{self, TerminalSize};
use shares::Share;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::sync::{mpsc, watch};

/// Terminals of a session. Each takes processes of its sandbox and memory of ours; a person looks at fewer.
pub const TERMINALS_MAX: usize = 8;
/// Terminals of a tenant on one machine: eight sessions full of them. The kernel's number for all (`kernel.pty.max` without
/// `kernel.pty.reserve`: 3,072) is that of 48 such tenants.
pub const TERMINALS_TENANT_MAX: usize = 64;
/// What is kept of a terminal's output for readers to come; bytes. About ten thousand full lines.
pub const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// What was typed and not read by the program; bytes. As much as the kernel keeps besides.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;
/// Readers of one terminal, each with a task and a stream.
pub const READERS_MAX: usize = 16;
/// How long the program at a terminal may run; milliseconds. A day: a forgotten one must not hold its sandbox for ever.
pub const LIFE_MAX_MS: u64 = 24 * 60 * 60 * 1_000;
/// How long the end of a program is waited for that was hung up, beyond which its sandbox's idleness ends it.
const END: Duration = Duration::from_millis(2 * domain::limits::EXEC_KILL_GRACE_MS);
/// How a shell reports the end by a signal: this and its number.
const CODE_SIGNAL: i32 = 128;

/// One terminal.
#[derive(Debug)]
pub struct Terminal {
    sandbox: Arc<Sandbox>,
    /// Of the program, in its sandbox.
    number: u64,
    state: watch::Sender<State>,
}

/// How far a terminal is.
#[derive(Debug)]
struct State {
    info: v1::Terminal,
    kept: Kept,
}

/// The last bytes of an output, and where they stand in it.
#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    end: u64,
}

impl Kept {
    fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    fn append(&mut self, data: &[u8]) {
        self.end += data.len() as u64;
        let data = &data[data.len().saturating_sub(KEPT_BYTES_MAX)..];
        let excess = (self.bytes.len() + data.len()).saturating_sub(KEPT_BYTES_MAX);
        self.bytes.drain(..excess);
        self.bytes.extend(data);
    }

    /// What is kept from `offset` on, at most a piece of a stream, and where it begins. Empty at the end.
    fn read(&self, offset: u64) -> (u64, Bytes) {
        let from = offset.clamp(self.start(), self.end);
        let skipped = usize::try_from(from - self.start()).unwrap_or(usize::MAX);
        (from, self.bytes.iter().skip(skipped).take(rpc::CHUNK_BYTES).copied().collect())
    }
}

impl Terminal {
    /// A terminal whose program has just been started.
    fn new(sandbox: Arc<Sandbox>, number: u64, info: v1::Terminal) -> Self {
        let state = watch::Sender::new(State { info, kept: Kept::default() });
        Self { sandbox, number, state }
    }

    /// As callers see it.
    pub fn info(&self) -> v1::Terminal {
        self.state.borrow().info.clone()
    }

    fn is_over(&self) -> bool {
        self.state.borrow().info.exit_code.is_some()
    }

    /// Keeps what the program says until it ends; `sandbox` does not end of idleness meanwhile, and the tenant has its `share`.
    async fn record(self: Arc<Self>, (sandbox, share): (Use, Share), mut events: mpsc::Receiver<Event>) {
        let mut code = CODE_SIGNAL + libc::SIGKILL;
        while let Some(event) = events.recv().await {
            match event {
                Event::Output(data) => self.state.send_modify(|state| state.kept.append(&data)),
                Event::Exit(exit) if exit.signal > 0 => code = CODE_SIGNAL + exit.signal,
                Event::Exit(exit) => code = exit.code,
            }
        }
        // Before anybody is told: whoever knows that it is over may ask for the end of the sandbox.
        drop((sandbox, share));
        self.state.send_modify(|state| state.info.exit_code = Some(code.unsigned_abs()));
    }

    /// Types.
    ///
    /// # Errors
    /// `terminal_input_full`, and nothing was typed; `terminal_unknown` when the program has ended.
    pub async fn type_in(&self, data: Vec<u8>) -> Result<(), Error> {
        if data.len() > INPUT_BYTES_MAX {
            let text = format!("at most {INPUT_BYTES_MAX} bytes can be typed at once");
            return Err(Error::refused(Code::ArgumentInvalid, text));
        }
        self.ask(request::Body::Type(wire::Type { exec: self.number, data })).await
    }

    /// Changes what is not empty.
    ///
    /// # Errors
    /// `argument_invalid`; `terminal_unknown` for a size when the program has ended.
    pub async fn update(&self, title: String, size: Option<TerminalSize>) -> Result<(), Error> {
        if let Some(size) = size {
            check_size(&size)?;
            self.ask(request::Body::Resize(wire::Resize { exec: self.number, size: Some(size) })).await?;
        }
        if !title.is_empty() {
            self.state.send_modify(|state| state.info.title = title);
        }
        Ok(())
    }

    async fn ask(&self, body: request::Body) -> Result<(), Error> {
        if self.is_over() || self.sandbox.is_ended() {
            let text = "the program at the terminal has ended";
            return Err(Error::refused(Code::TerminalUnknown, text));
        }
        self.sandbox.call(body).await.map(drop)
    }

    /// Hangs up, and waits until the program is over, but not for long.
    pub async fn end(&self) {
        let mut state = self.state.subscribe();
        if !self.is_over() {
            self.sandbox.kill(self.number).await;
            let over = state.wait_for(|state| state.info.exit_code.is_some());
            drop(tokio::time::timeout(END, over).await);
        }
    }
}

/// Checks a size.
///
/// # Errors
/// `argument_invalid`.
pub fn check_size(size: &TerminalSize) -> Result<(), Error> {
    let sides = 1..=u32::from(u16::MAX);
    if sides.contains(&size.rows) && sides.contains(&size.columns) {
        return Ok(());
    }
    Err(Error::refused(Code::ArgumentInvalid, "rows and columns must be between 1 and 65,535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_at_their_offsets() {
        let mut kept = Kept::default();
        kept.append(b"first");
        assert_eq!(kept.read(2), (2, Bytes::from_static(b"rst")));
        kept.append(&vec![b'x'; KEPT_BYTES_MAX - 2]);
        assert_eq!((kept.start(), kept.end), (3, 5 + KEPT_BYTES_MAX as u64 - 2));
        assert_eq!(kept.read(0).0, 3);
        assert_eq!(&kept.read(0).1[..3], b"stx");
        kept.append(&vec![b'y'; 2 * KEPT_BYTES_MAX]);
        assert_eq!((kept.bytes.len(), kept.bytes[0]), (KEPT_BYTES_MAX, b'y'));
        assert_eq!(kept.read(kept.end), (kept.end, Bytes::new()));
        assert_eq!(kept.read(u64::MAX), (kept.end, Bytes::new()));
    }
}
