//! The start of a program at a terminal.

use super::start_script;
use crate::{
    disk::workspace::Purpose,
    error::Error,
    isolation::terminals::TERMINALS_MAX,
    running::guard::SandboxGuard,
    session::caller::Caller,
    terminal::{limits::LIFE_MAX_MS, pty::Terminal, registry},
    tree::meta::Meta,
};
use rpc::v1::{self, ErrorCode};
use std::sync::Arc;

/// Runs a program by its name or path in place of the shell.
const RUN: &str = "exec -- \"$0\" \"$@\"";

/// A program to be started at a terminal.
#[derive(Debug)]
pub struct Program {
    /// Its id, title, command, arguments and directory.
    pub info: v1::Terminal,
    /// The whole environment, as `NAME=value`.
    pub env: Vec<String>,
    pub size: v1::TerminalSize,
}

/// Starts a program in the sandbox of the caller. Returns the terminal, and whether it is new: a terminal with this id
/// may already exist.
///
/// # Errors
/// `terminals_too_many`, `limit_disk`, `disk_full`; what [`Caller::enter`] refuses, and what the start of a command does.
pub async fn run(caller: &Caller, program: Program, meta: &Meta) -> Result<(Arc<Terminal>, bool), Error> {
    let Caller { session, .. } = caller;
    // Before the lock: other terminals of the session do not wait for the start of a sandbox.
    let begun = begin(caller, &program, meta).await?;
    let mut terminals = session.terminals.lock().await;
    if let Some(existing) = registry::find(&terminals, &program.info.id) {
        return Ok((existing, false));
    }
    if terminals.len() >= TERMINALS_MAX {
        let Some(ended) = terminals.iter().position(|terminal| terminal.is_over()) else {
            let text = format!("the session already has {TERMINALS_MAX} terminals; remove one");
            return Err(Error::refused(ErrorCode::TerminalsTooMany, text));
        };
        terminals.remove(ended);
    }
    caller.root.disk.admit(Purpose::Write).await?;
    let permit = session.shared.terminals.take(session.key.tenant)?;
    let entered = caller.enter().await?;
    drop(begun);
    let failure = entered.start().failure();
    let mut info = program.info;
    let exec = sandbox_wire::v1::Exec {
        command: RUN.to_owned(),
        arguments: [&info.command].into_iter().chain(&info.args).cloned().collect(),
        directory: info.directory.clone(),
        env: program.env,
        timeout_ms: LIFE_MAX_MS,
        output_bytes_max: u64::MAX,
        terminal: Some(program.size),
    };
    let started = entered.sandbox().exec(exec).await?;
    info.pid = started.pid;
    let terminal = Arc::new(Terminal::new(Arc::clone(entered.sandbox()), started.number, info));
    if let Some(failure) = failure {
        terminal.print(&format!("{failure}\n"));
    }
    terminals.push(Arc::clone(&terminal));
    session.shared.tasks.spawn("terminal", Arc::clone(&terminal).record(entered, permit, started.events));
    metrics::counter!("flotilla_terminals_started_total").increment(1);
    Ok((terminal, true))
}

/// Starts the sandbox of a new terminal, and keeps it from ending.
async fn begin(caller: &Caller, program: &Program, meta: &Meta) -> Result<Option<SandboxGuard>, Error> {
    let is_there = registry::find(&caller.session.terminals.lock().await, &program.info.id).is_some();
    if is_there || meta.start.is_empty() {
        return Ok(None);
    }
    caller.root.disk.admit(Purpose::Write).await?;
    let entered = caller.enter().await?;
    start_script::run(caller, &entered, meta).await;
    Ok(Some(entered))
}
