//! The end of the process: an exit code for scripts, and one sentence for people.

use std::io;

/// Exit codes; part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The turn, or the command, is done.
    Done,
    /// Wrong usage, no server, or a refused call.
    Usage,
    /// The turn failed or was aborted.
    Failed,
    /// The turn waits for a human.
    NeedsHuman,
    /// The budget is used up.
    Budget,
    /// `--timeout` expired; the turn continues.
    StillRunning,
    /// Ctrl-C; the turn continues.
    Interrupted,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Usage => 1,
            Self::Failed => 2,
            Self::NeedsHuman => 3,
            Self::Budget => 4,
            Self::StillRunning => 5,
            Self::Interrupted => 130,
        }
    }

    /// Returns the code for the `outcome` of a `session.idle` event; an unknown one counts as failed.
    pub(crate) fn of_outcome(outcome: &str) -> Self {
        match outcome {
            "done" => Self::Done,
            "needs_human" => Self::NeedsHuman,
            "budget" => Self::Budget,
            _ => Self::Failed,
        }
    }
}

/// Returns the sentence for an error: the server's message with its code, or the chain of causes. Never a debug dump.
/// `None` if the reader of our output has exited.
pub(crate) fn sentence(error: &anyhow::Error) -> Option<String> {
    let broken = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(broken) {
        return None;
    }
    let mut words = Vec::new();
    for cause in error.chain() {
        if let Some(status) = cause.downcast_ref::<tonic::Status>() {
            words.push(status_sentence(status));
            break;
        }
        words.push(cause.to_string());
    }
    Some(words.join(": "))
}

fn status_sentence(status: &tonic::Status) -> String {
    if let Some(code) = rpc::status::code_of(status) {
        return format!("{} ({code})", status.message());
    }
    match status.code() {
        tonic::Code::Unavailable => "cannot reach the gateway".to_owned(),
        tonic::Code::Unauthenticated => format!("the gateway refused the API key: {}", status.message()),
        code => format!("{} ({code:?})", status.message()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn server_errors_are_a_sentence_and_a_code() {
        let status = rpc::status::not_found("session_not_found", "there is no session ses_1");
        let error = Err::<(), _>(status).context("load the session").unwrap_err();
        assert_eq!(
            sentence(&error).unwrap(),
            "load the session: there is no session ses_1 (session_not_found)"
        );
        let down = anyhow::Error::new(tonic::Status::unavailable("tcp connect error"));
        assert_eq!(sentence(&down).unwrap(), "cannot reach the gateway");
    }

    #[test]
    fn a_reader_that_left_is_no_error() {
        assert_eq!(sentence(&io::Error::from(io::ErrorKind::BrokenPipe).into()), None);
    }
}
