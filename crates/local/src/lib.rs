//! The embedded default: private Postgres, Redis and NATS as child processes in one data directory.
//! It never touches a system instance, and what it starts dies with its launcher.

pub mod lock;
pub mod model_script;
pub mod process;
pub mod programs;
pub mod shared;
pub mod stack;

mod home;
mod plan;
mod probe;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Lines of a log that are shown when a server fails.
const TAIL_LINES: usize = 20;

/// How the servers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether Postgres waits for the disk. Off only for tests: a power cut then loses the instance.
    pub fsync: bool,
    /// Connections that Postgres takes at once.
    pub postgres_connections: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { fsync: true, postgres_connections: 200 }
    }
}

/// Why there is no stack.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Programs are not installed.
    #[error("not installed: {}; `./dev up` installs them", programs.join(", "))]
    Missing {
        /// All that are missing.
        programs: Vec<&'static str>,
    },
    /// Another process uses the data directory.
    #[error("process {pid} runs in this directory already (it holds {})", file.display())]
    Busy {
        /// The lock.
        file: PathBuf,
        /// Who holds it.
        pid: String,
    },
    /// Root started this, and there is no user to run Postgres as.
    #[error("Postgres does not run as root, and there is neither a user \"postgres\" nor \"nobody\"")]
    NoUser,
    /// The Postgres instance could not be made.
    #[error("make a Postgres instance with initdb: {output}")]
    Initdb {
        /// What initdb said.
        output: String,
    },
    /// A server did not start.
    #[error("{role} {what}; the end of its log:\n{log_tail}")]
    Server {
        /// Which one.
        role: &'static str,
        /// What happened.
        what: String,
        /// Its last words.
        log_tail: String,
    },
    /// The system refused something.
    #[error("{action} {}", path.display())]
    Io {
        /// A verb.
        action: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The runtime is ending.
    #[error("the process is ending")]
    Interrupted,
}

/// Starts Postgres, Redis and NATS on free loopback ports with their files below `dir`.
///
/// What a killed launcher left behind is cleared first. System instances are never touched.
///
/// # Errors
/// `Missing` names the programs that are not installed, `Busy` the process that holds `dir`, `Server` shows the end of
/// the log of a server that does not start. Nothing is left running.
///
/// Dropped midway: the servers started so far are killed.
pub async fn start(dir: &Path, options: Options) -> Result<stack::Stack, Error> {
    stack::start(dir, options).await
}

/// Joins the set of servers in `dir`, or starts one with empty databases. Joining takes about a millisecond.
///
/// Postgres runs without fsync. All users share the servers: each takes its own database, key prefix and subjects.
/// The set ends some seconds after its last user process.
///
/// # Errors
/// As [`start`], without `Busy`.
pub async fn shared(dir: &Path) -> Result<shared::Shared, Error> {
    shared::shared(dir).await
}

impl Error {
    fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Gives the last lines of a log; empty when there is none.
pub fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Whether process `pid` lives and was started with `dir` among its arguments: a bare number may be another's by now.
fn process_exists(pid: u32, dir: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(&*dir.to_string_lossy())
}

#[cfg(test)]
mod tests;
