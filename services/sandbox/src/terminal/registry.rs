//! The terminals of one session, each id once.

use super::{LIFE_MAX_MS, READERS_MAX, TERMINALS_MAX, Terminal};
use crate::{code::Code, error::Error, session::Session, wire};
use rpc::v1;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Runs a program by its name or path in place of the shell.
const RUN: &str = "exec -- \"$0\" \"$@\"";

/// The terminals of one session, oldest first. Its lock is taken before those of the session, and held while a sandbox starts.
#[derive(Debug, Default)]
pub struct Registry(Mutex<Vec<Arc<Terminal>>>);

/// A program to be started at a terminal.
#[derive(Debug)]
pub struct Program {
    /// With its id, title, command, arguments and directory.
    pub info: v1::Terminal,
    /// The whole environment, as `NAME=value`.
    pub env: Vec<String>,
    /// Of the terminal.
    pub size: v1::TerminalSize,
}

impl Registry {
    /// Starts a program in the sandbox of `session`, which works in the workspace of `root`. Gives the terminal, and whether
    /// it was made: one of this id may have been there before.
    ///
    /// # Errors
    /// `terminals_too_many`; what [`Session::enter`] refuses, and what the start of a command does.
    pub async fn create(
        &self,
        (session, root): (&Arc<Session>, &Arc<Session>),
        program: Program,
    ) -> Result<(Arc<Terminal>, bool), Error> {
        let mut terminals = self.0.lock().await;
        if let Some(known) = find(&terminals, &program.info.id) {
            return Ok((known, false));
        }
        if terminals.len() >= TERMINALS_MAX {
            let Some(ended) = terminals.iter().position(|terminal| terminal.is_over()) else {
                let text = format!("the session has {TERMINALS_MAX} terminals already; remove one");
                return Err(Error::refused(Code::TerminalsTooMany, text));
            };
            terminals.remove(ended);
        }
        let share = session.shared.terminals.take(session.key.tenant)?;
        let entered = session.enter(root).await?;
        let mut info = program.info;
        let exec = wire::Exec {
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
        terminals.push(Arc::clone(&terminal));
        session
            .shared
            .tasks
            .spawn("terminal", Arc::clone(&terminal).record((entered, share), started.events));
        metrics::counter!("flotilla_terminals_started_total").increment(1);
        Ok((terminal, true))
    }

    /// Finds a terminal.
    ///
    /// # Errors
    /// `terminal_unknown`.
    pub async fn get(&self, id: &str) -> Result<Arc<Terminal>, Error> {
        find(&self.0.lock().await, id).ok_or_else(|| unknown(id))
    }

    /// Finds a terminal for another reader.
    ///
    /// # Errors
    /// `terminal_unknown`, `terminals_too_many`.
    pub async fn get_for_reader(&self, id: &str) -> Result<Arc<Terminal>, Error> {
        let terminal = self.get(id).await?;
        if terminal.state.receiver_count() >= READERS_MAX {
            let text = format!("{READERS_MAX} readers follow the terminal already");
            return Err(Error::refused(Code::TerminalsTooMany, text));
        }
        Ok(terminal)
    }

    /// Gives all of them.
    pub async fn list(&self) -> Vec<v1::Terminal> {
        self.0.lock().await.iter().map(|terminal| terminal.info()).collect()
    }

    /// Forgets a terminal and gives it, to be ended.
    ///
    /// # Errors
    /// `terminal_unknown`.
    pub async fn remove(&self, id: &str) -> Result<Arc<Terminal>, Error> {
        let mut terminals = self.0.lock().await;
        let found = find(&terminals, id).ok_or_else(|| unknown(id))?;
        terminals.retain(|terminal| !Arc::ptr_eq(terminal, &found));
        Ok(found)
    }

    /// Forgets all of them; their sandbox has ended.
    pub async fn clear(&self) {
        self.0.lock().await.clear();
    }
}

fn find(terminals: &[Arc<Terminal>], id: &str) -> Option<Arc<Terminal>> {
    terminals.iter().find(|terminal| terminal.state.borrow().info.id == id).cloned()
}

fn unknown(id: &str) -> Error {
    Error::refused(Code::TerminalUnknown, format!("the session has no terminal {id:?}"))
}
