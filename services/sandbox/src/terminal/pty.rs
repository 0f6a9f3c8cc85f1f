//! One terminal: its latest output, its readers, and the end of its program. All of it is in memory: a terminal
//! ends with its sandbox, and so with this service.

use super::{permits::TerminalPermit, scrollback::Scrollback};
use crate::{
    error::Error,
    running::guard::SandboxGuard,
    sandbox::{Event, Sandbox},
};
use domain::limits::TERMINAL_INPUT_BYTES_MAX;
use rpc::v1::{self, ErrorCode, TerminalSize};
use sandbox_wire::v1::{Keystrokes, Resize, request};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, watch};

/// How long a removal waits for the program to end after the hang-up. After that, the idle timeout of the sandbox ends
/// it.
const END: Duration = Duration::from_millis(2 * domain::limits::EXEC_KILL_GRACE_MS);
/// A shell reports a signal as this number plus that of the signal.
const CODE_SIGNAL: i32 = 128;

#[derive(Debug)]
pub struct Terminal {
    sandbox: Arc<Sandbox>,
    /// Of the program, in its sandbox.
    number: u64,
    pub(super) state: watch::Sender<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) info: v1::Terminal,
    pub(super) scrollback: Scrollback,
}

impl Terminal {
    /// A terminal whose program has just been started.
    pub(crate) fn new(sandbox: Arc<Sandbox>, number: u64, info: v1::Terminal) -> Self {
        let state = watch::Sender::new(State { info, scrollback: Scrollback::default() });
        Self { sandbox, number, state }
    }

    /// The terminal as callers see it.
    pub fn info(&self) -> v1::Terminal {
        self.state.borrow().info.clone()
    }

    /// Shows lines of ours before the output of the program.
    pub(crate) fn print(&self, lines: &str) {
        let lines = lines.replace('\n', "\r\n");
        self.state.send_modify(|state| state.scrollback.append(lines.as_bytes()));
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.borrow().info.exit_code.is_some()
    }

    /// Keeps the output of the program until it ends. The guard keeps the sandbox from ending, and the permit counts the
    /// terminal for its tenant.
    pub(crate) async fn record(
        self: Arc<Self>,
        sandbox: SandboxGuard,
        permit: TerminalPermit,
        mut events: mpsc::Receiver<Event>,
    ) {
        let mut code = CODE_SIGNAL + libc::SIGKILL;
        while let Some(event) = events.recv().await {
            match event {
                Event::Output(data) => self.state.send_modify(|state| state.scrollback.append(&data)),
                Event::Exit(exit) if exit.signal > 0 => code = CODE_SIGNAL + exit.signal,
                Event::Exit(exit) => code = exit.code,
            }
        }
        sandbox.disk().note_end();
        // Drop them before the exit is published: a caller that sees it may release the sandbox at once.
        drop((sandbox, permit));
        self.state.send_modify(|state| state.info.exit_code = Some(code.unsigned_abs()));
    }

    /// Types.
    ///
    /// # Errors
    /// `terminal_input_full`: the terminal took none of the input; `terminal_unknown`: the program has ended.
    pub async fn type_in(&self, data: Vec<u8>) -> Result<(), Error> {
        if data.len() > TERMINAL_INPUT_BYTES_MAX {
            let text = format!("the input is too long; the limit is {TERMINAL_INPUT_BYTES_MAX} bytes");
            return Err(Error::refused(ErrorCode::ArgumentInvalid, text));
        }
        self.ask(request::Body::Keystrokes(Keystrokes { exec: self.number, data })).await
    }

    /// Updates the title and the size. Empty fields are unchanged.
    ///
    /// # Errors
    /// `argument_invalid`; `terminal_unknown` for a size when the program has ended.
    pub async fn update(&self, title: String, size: Option<TerminalSize>) -> Result<(), Error> {
        if let Some(size) = size {
            check_size(&size)?;
            self.ask(request::Body::Resize(Resize { exec: self.number, size: Some(size) })).await?;
        }
        if !title.is_empty() {
            self.state.send_modify(|state| state.info.title = title);
        }
        Ok(())
    }

    async fn ask(&self, body: request::Body) -> Result<(), Error> {
        if self.is_over() || self.sandbox.is_ended() {
            let text = "the program at the terminal has ended";
            return Err(Error::refused(ErrorCode::TerminalUnknown, text));
        }
        self.sandbox.call(body).await.map(drop)
    }

    /// Hangs up, and waits a short time for the program to end.
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
    Err(Error::refused(ErrorCode::ArgumentInvalid, "rows and columns must be between 1 and 65,535"))
}
