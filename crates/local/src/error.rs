//! The errors of an embedded stack.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Why the stack did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Server programs are not installed.
    #[error("not installed: {}; `./dev up` installs them", programs.join(", "))]
    Missing { programs: Vec<&'static str> },
    /// Another process uses the data directory.
    #[error("process {pid} already uses this data directory (it holds {})", file.display())]
    Busy { file: PathBuf, pid: String },
    /// Root started the process, and the system has no user to run Postgres as.
    #[error(
        "Postgres refuses to run as root, and this system has neither a user \"postgres\" nor \"nobody\"; start Flotilla as another user"
    )]
    NoUser,
    /// initdb could not create the Postgres instance.
    #[error("cannot create a Postgres instance with initdb: {output}")]
    Initdb { output: String },
    /// A server ended before it accepted clients. Another process may have taken its port.
    #[error("{role} ended ({how}); the end of its log:\n{log_tail}")]
    Ended {
        role: &'static str,
        /// How it ended, as text.
        how: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// A server runs, and accepted no clients in time.
    #[error("{role} accepted no clients within {} s; the end of its log:\n{log_tail}", within.as_secs())]
    Late {
        role: &'static str,
        within: Duration,
        /// The last lines of its log.
        log_tail: String,
    },
    #[error("{action} {}", path.display())]
    Io {
        /// The attempted action, a verb.
        action: &'static str,
        /// The path that it was applied to.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The runtime is shutting down.
    #[error("the process is shutting down")]
    Interrupted,
}

impl Error {
    /// Creates an `Io` error from the attempted action (a verb) and its path.
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { action, path, source }
    }
}
