//! The errors of the sandbox service and how they look to a caller.

use crate::code::Code;
use std::io;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller is told `code` and `message`.
    #[error("{message}")]
    Refused {
        /// For programs.
        code: Code,
        /// One or two sentences for a person or a model.
        message: String,
    },
    /// The machine failed us; the caller is told `internal` only.
    #[error("{doing}")]
    Io {
        /// What was being done: verb and object.
        doing: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Makes an error that the caller is told.
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Self::Refused { code, message: message.into() }
    }

    /// Gives a function that wraps an IO error; `doing` is verb and object.
    pub fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Refused { code, .. } => *code,
            Self::Io { .. } => Code::Internal,
        }
    }

    /// The status that the caller gets. The cause stays in the log.
    pub fn to_status(&self) -> tonic::Status {
        let message = match self {
            Self::Refused { message, .. } => message.clone(),
            Self::Io { doing, .. } => format!("the sandbox service could not {doing}"),
        };
        rpc::status::error(self.code().grpc(), self.code().name(), message)
    }
}
