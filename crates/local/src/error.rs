//! Why an embedded stack does not start.

use std::{
    io,
    path::{Path, PathBuf},
};

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

impl Error {
    /// Makes an `Io` error: what was done (a verb) and to which path.
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { action, path, source }
    }
}
