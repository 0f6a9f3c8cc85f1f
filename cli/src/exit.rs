//! The end of the process: an exit code for scripts, one sentence for people, and an error code for programs.

use rpc::v1::ErrorCode;
use serde_json::{Value, json};
use std::{borrow::Cow, error::Error, fmt, io, sync::Arc};

/// The code of an error that arose in this program and has no code of its own.
const FAILED: &str = "command_failed";
/// The code of a gateway that does not answer.
const GATEWAY_UNREACHABLE: &str = "gateway_unreachable";
/// The code of a command line that cannot be understood.
pub(crate) const USAGE: &str = "usage";

/// Tells a person that the server that answered is not a gateway.
pub(crate) const NO_GATEWAY: &str = "this is no Flotilla gateway; check the address and the port";

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
    /// Ctrl-C; a turn continues.
    Interrupted,
    /// The code of a program in a terminal of a session, or of a command that a person runs in its files.
    Program(u8),
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
            Self::Program(code) => code,
        }
    }

    /// Returns the code of a command that ended with `code`.
    pub(crate) fn of_command(code: u64) -> Self {
        match code {
            0 => Self::Done,
            code => Self::Program(u8::try_from(code).unwrap_or(u8::MAX)),
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
    let broken = |cause: &(dyn Error + 'static)| {
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

/// An error of this program that has a stable code.
#[derive(Debug)]
pub(crate) struct CodedError {
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
}

impl fmt::Display for CodedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CodedError {}

/// Makes an error with a stable code.
pub(crate) fn coded(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> anyhow::Error {
    CodedError { code: code.into(), message: message.into() }.into()
}

/// The error of a gateway that could not be reached; `error`: what the connection says.
pub(crate) fn unreachable_gateway(url: &str, error: &(dyn Error + 'static)) -> anyhow::Error {
    coded(GATEWAY_UNREACHABLE, unreachable_sentence(&format!(" {url}"), &cause(error)))
}

/// The deepest cause of an error, which is that of the operating system.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    sources(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Why a call did not reach the gateway or lost it. It is the source of the status of the call.
#[derive(Debug)]
pub(crate) struct GatewayLoss {
    /// The address of the gateway.
    pub(crate) url: Arc<str>,
    pub(crate) source: tonic::transport::Error,
}

impl fmt::Display for GatewayLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.url)
    }
}

impl Error for GatewayLoss {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Whether the gateway itself answered with this error.
pub(crate) fn is_answer(error: &anyhow::Error) -> bool {
    let status = error.chain().find_map(|cause| cause.downcast_ref::<tonic::Status>());
    status.is_some_and(|status| rpc::status::code_of(status).is_some() || !is_unreachable(status))
}

/// Whether the connection failed, and not the gateway.
fn is_unreachable(status: &tonic::Status) -> bool {
    status.code() == tonic::Code::Unavailable || loss(status).is_some()
}

fn loss(status: &tonic::Status) -> Option<&GatewayLoss> {
    sources(status).into_iter().find_map(|source| source.downcast_ref::<GatewayLoss>())
}

/// The sources of an error, the deepest last.
fn sources<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let (mut found, mut next) = (vec![], error.source());
    while let Some(source) = next {
        found.push(source);
        next = source.source();
    }
    found
}

/// Returns the stable code of an error: the server's, or one of this program.
pub(crate) fn code(error: &anyhow::Error) -> String {
    for cause in error.chain() {
        if let Some(coded) = cause.downcast_ref::<CodedError>() {
            return coded.code.clone().into_owned();
        }
        if let Some(status) = cause.downcast_ref::<tonic::Status>() {
            return rpc::status::code_of(status).unwrap_or_else(|| match status.code() {
                _ if is_unreachable(status) => GATEWAY_UNREACHABLE.to_owned(),
                tonic::Code::Unauthenticated => "key_refused".to_owned(),
                code => format!("grpc_{}", code as i32),
            });
        }
    }
    FAILED.to_owned()
}

/// Whether an error has this code.
pub(crate) fn has_code(error: &anyhow::Error, wanted: ErrorCode) -> bool {
    code(error) == wanted.as_str()
}

/// Returns the object that `--json` writes to standard error.
pub(crate) fn error_json(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message}})
}

fn status_sentence(status: &tonic::Status) -> String {
    if let Some(code) = rpc::status::code_of(status) {
        let hint = if code == ErrorCode::SessionNotFound.as_str() {
            "; `flotilla ls` lists the sessions"
        } else {
            ""
        };
        return format!("{} ({code}){hint}", status.message());
    }
    match status.code() {
        _ if is_unreachable(status) => {
            let url = loss(status).map(|loss| format!(" {}", loss.url)).unwrap_or_default();
            let causes = sources(status);
            let cause = causes.last().map_or_else(|| status.message().to_owned(), ToString::to_string);
            unreachable_sentence(&url, &cause)
        }
        // A web server answers without the trailers of gRPC.
        _ if status.message().starts_with("grpc-status header missing") => {
            format!("{NO_GATEWAY} ({})", status.message())
        }
        tonic::Code::Unauthenticated => format!("the gateway refused the API key: {}", status.message()),
        code => format!("{} ({code:?})", status.message()),
    }
}

/// Says which gateway cannot be reached, and why. `url`: with a space before it; empty: it is not known.
fn unreachable_sentence(url: &str, cause: &str) -> String {
    let hint = if is_plain(cause) { "; it speaks no TLS, so its address begins with http://" } else { "" };
    format!("cannot reach the gateway{url}: {cause}{hint}")
}

/// Whether TLS found something else at the other end.
fn is_plain(cause: &str) -> bool {
    cause.contains("InvalidContentType")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn server_errors_are_a_sentence_and_a_code() {
        let status = rpc::status::error(ErrorCode::SessionNotFound, "there is no session ses_1");
        let error = Err::<(), _>(status).context("load the session").unwrap_err();
        assert_eq!(
            sentence(&error).unwrap(),
            "load the session: there is no session ses_1 (session_not_found); `flotilla ls` lists the sessions"
        );
        let web = anyhow::Error::new(tonic::Status::unimplemented(
            "grpc-status header missing, mapped from HTTP status code 404",
        ));
        assert!(sentence(&web).unwrap().starts_with("this is no Flotilla gateway"));
        let down = anyhow::Error::new(tonic::Status::unavailable("tcp connect error"));
        assert_eq!(sentence(&down).unwrap(), "cannot reach the gateway: tcp connect error");
        assert!(!is_answer(&down) && is_answer(&error));
    }

    #[test]
    fn every_error_has_a_code() {
        let of = |status: tonic::Status| code(&Err::<(), _>(status).context("load").unwrap_err());
        assert_eq!(of(rpc::status::error(ErrorCode::SessionNotFound, "no session")), "session_not_found");
        assert_eq!(of(tonic::Status::unavailable("tcp connect error")), "gateway_unreachable");
        assert_eq!(of(tonic::Status::unauthenticated("no key")), "key_refused");
        assert_eq!(of(tonic::Status::internal("lost")), "grpc_13");
        let lost = CodedError { code: "connection_lost".into(), message: "lost".to_owned() };
        let lost = Err::<(), _>(lost).context("follow the session").unwrap_err();
        assert_eq!(
            (code(&lost).as_str(), sentence(&lost).unwrap().as_str()),
            ("connection_lost", "follow the session: lost")
        );
        assert_eq!(code(&anyhow::anyhow!("any")), FAILED);
    }

    #[test]
    fn a_reader_that_left_is_no_error() {
        assert_eq!(sentence(&io::Error::from(io::ErrorKind::BrokenPipe).into()), None);
    }
}
