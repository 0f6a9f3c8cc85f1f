//! Asks the door for objects of Git LFS. A message of HTTP/1.0 ends with its connection, so nothing has to be put together from pieces.

use super::record::Reason;
use domain::{
    egress::lfs::{
        batch::{LFS_BATCH, LFS_OBJECTS_PATH, LfsBatch, LfsBatchAnswer, LfsResult},
        pointer::LfsPointer,
    },
    text::head,
};
use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::Duration,
};
use wire::v1::ErrorCode;

/// The socket of the broker.
const SOCKET: &str = "git";
/// How long the door may send nothing. It gives up before, and says so.
const SILENCE: Duration = Duration::from_secs(150);
/// Bytes of the head of an answer. The door sends a few hundred. Beyond it: `repository_unreachable`.
const HEAD_BYTES_MAX: u64 = 16 * 1024;
/// Bytes of an answer to a batch: a hundred objects, each with a link to the door. Beyond it: `repository_unreachable`.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of a refusal that are shown: one sentence.
const REFUSAL_BYTES: usize = 4 * 1024;
/// Times that a server may want fewer requests. Beyond it: `repository_unreachable`.
const WAITS_MAX: u32 = 3;
/// Longest wait that a server may ask for; seconds. Beyond it: `repository_unreachable`.
const WAIT_SECONDS_MAX: u64 = 60;
/// The status of a refusal that may pass.
const UNAVAILABLE: u16 = 503;
const OK: u16 = 200;

/// The door, and the repository whose objects it reads.
#[derive(Debug)]
pub(super) struct Client<'a> {
    /// The directory of the door.
    pub(super) door: &'a Path,
    /// The host and the path of the repository.
    pub(super) repository: &'a str,
}

#[derive(Debug)]
pub(super) enum Failure {
    /// The door refuses: its code, and a line for people that ends with the code in brackets.
    Refusal {
        code: String,
        line: String,
    },
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Failure {
    pub(super) fn refusal(code: ErrorCode, text: impl fmt::Display) -> Self {
        Self::spelled(code.as_str(), text)
    }

    fn spelled(code: &str, text: impl fmt::Display) -> Self {
        Self::Refusal { code: code.to_owned(), line: format!("{text} ({code})") }
    }

    /// Why files stay pointers after this failure. `None`: the whole run fails.
    pub(super) fn reason(&self) -> Option<Reason> {
        let Self::Refusal { code, .. } = self else { return None };
        match ErrorCode::parse(code) {
            Some(ErrorCode::GitLfsMissing) => Some(Reason::Missing),
            Some(ErrorCode::GitLfsUnsupported) => Some(Reason::Unsupported),
            // A broker of an earlier version reads nothing without a credential.
            Some(ErrorCode::GitLfsLoginRequired | ErrorCode::GitPrefixMissing) => Some(Reason::Login),
            Some(ErrorCode::GitAddressPrivate) => Some(Reason::Private),
            _ => None,
        }
    }
}

/// An answer whose body is to be read.
struct LfsAnswer {
    status: u16,
    code: String,
    /// Seconds after which the server takes the next request.
    retry_after: Option<u64>,
    body: BufReader<UnixStream>,
}

impl Client<'_> {
    /// Asks which of these objects the server gives.
    pub(super) fn batch(&self, pointers: &[LfsPointer]) -> Result<Vec<LfsResult>, Failure> {
        let failed =
            || Failure::refusal(ErrorCode::GitFailed, "the door does not answer as a server of Git LFS");
        let body = LfsBatch::download(pointers).to_text();
        let target = format!("POST /{}{LFS_OBJECTS_PATH}{LFS_BATCH}", self.repository);
        let answer = self.ask(&target, &body)?;
        let mut text = vec![];
        answer.body.take(ANSWER_BYTES_MAX).read_to_end(&mut text).map_err(broken)?;
        LfsBatchAnswer::parse(&text).and_then(|answer| answer.results(pointers)).ok_or_else(failed)
    }

    /// Begins to read an object.
    pub(super) fn object(&self, pointer: &LfsPointer) -> Result<impl Read + use<>, Failure> {
        let (oid, size) = (pointer.oid(), pointer.size());
        let target = format!("GET /{}{LFS_OBJECTS_PATH}{oid}?size={size}", self.repository);
        Ok(self.ask(&target, "")?.body)
    }

    /// Sends a request, again if the server wants a pause.
    fn ask(&self, target: &str, body: &str) -> Result<LfsAnswer, Failure> {
        let mut waits = 0;
        loop {
            let answer = self.send(target, body)?;
            let retry_after = answer.retry_after;
            match retry_after {
                _ if answer.status == OK => return Ok(answer),
                Some(seconds)
                    if answer.status == UNAVAILABLE && seconds <= WAIT_SECONDS_MAX && waits < WAITS_MAX =>
                {
                    waits += 1;
                    thread::sleep(Duration::from_secs(seconds));
                }
                Some(_) | None => return Err(answer.into_refusal()),
            }
        }
    }

    fn send(&self, target: &str, body: &str) -> Result<LfsAnswer, Failure> {
        let closed = |error: io::Error| {
            Failure::refusal(
                ErrorCode::GitUnavailable,
                format!("the door of the session to git is closed: {error}"),
            )
        };
        let mut door = UnixStream::connect(self.door.join(SOCKET)).map_err(closed)?;
        door.set_read_timeout(Some(SILENCE))?;
        door.set_write_timeout(Some(SILENCE))?;
        let length = body.len();
        write!(door, "{target} HTTP/1.0\r\nHost: door\r\nContent-Length: {length}\r\n\r\n{body}")
            .map_err(broken)?;
        LfsAnswer::read(BufReader::new(door)).map_err(broken)
    }
}

impl LfsAnswer {
    fn read(mut body: BufReader<UnixStream>) -> io::Result<Self> {
        let lines = read_head(&mut body)?;
        let status = lines.first().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let field = |wanted: &str| {
            let mut fields = lines.iter().filter_map(|line| line.split_once(':'));
            fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
        };
        let code = field("x-flotilla-code").unwrap_or(ErrorCode::GitFailed.as_str()).to_owned();
        let retry_after = field("retry-after").and_then(|value| value.parse().ok());
        Ok(Self { status: status.ok_or(io::ErrorKind::InvalidData)?, code, retry_after, body })
    }

    fn into_refusal(mut self) -> Failure {
        let mut text = vec![];
        // What has arrived is shown.
        drop((&mut self.body).take(REFUSAL_BYTES as u64).read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().next().unwrap_or_default();
        if line.ends_with(&format!("({})", self.code)) {
            let line = head(line, REFUSAL_BYTES).to_owned();
            return Failure::Refusal { code: self.code, line };
        }
        Failure::spelled(&self.code, format!("the door answered {}", self.status))
    }
}

/// The lines before the first empty one.
fn read_head(reader: &mut impl BufRead) -> io::Result<Vec<String>> {
    let mut limited = reader.take(HEAD_BYTES_MAX);
    let mut lines = vec![];
    loop {
        let mut line = String::new();
        limited.read_line(&mut line)?;
        let text = line.strip_suffix('\n').ok_or(io::ErrorKind::InvalidData)?;
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() {
            return Ok(lines);
        }
        lines.push(text.to_owned());
    }
}

/// The failure of a connection that ended too early.
pub(super) fn broken(error: io::Error) -> Failure {
    Failure::refusal(ErrorCode::GitInterrupted, format!("the transfer broke off: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Asks a door that gives these answers, one to each connection, for an object.
    fn ask(answers: &[&'static str]) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(SOCKET)).unwrap();
        let answers = answers.to_vec();
        let server = thread::spawn(move || {
            for answer in answers {
                let (mut client, _) = listener.accept().unwrap();
                let lines = read_head(&mut BufReader::new(client.try_clone().unwrap())).unwrap();
                assert!(lines[0].starts_with("GET /h.org/a.git/info/lfs/objects/"), "{lines:?}");
                client.write_all(answer.as_bytes()).unwrap();
            }
        });
        let client = Client { door: directory.path(), repository: "h.org/a.git" };
        let pointer = LfsPointer::new(&"a".repeat(64), 3).unwrap();
        let read = client.object(&pointer).map(|mut body| {
            let mut text = String::new();
            body.read_to_string(&mut text).unwrap();
            text
        });
        server.join().unwrap();
        read.map_err(|failure| match failure {
            Failure::Refusal { line, .. } => line,
            Failure::Io(error) => error.to_string(),
        })
    }

    #[test]
    fn a_refusal_leaves_pointers_if_another_attempt_would_get_it_again() {
        for (code, want) in [
            ("git_lfs_missing", Some(Reason::Missing)),
            ("git_lfs_unsupported", Some(Reason::Unsupported)),
            ("git_lfs_login_required", Some(Reason::Login)),
            ("git_prefix_missing", Some(Reason::Login)),
            ("git_address_private", Some(Reason::Private)),
            ("git_unauthorized", None),
            ("git_busy", None),
            ("git_failed", None),
            ("git_lfs_object_invalid", None),
            ("egress_quota_used_up", None),
        ] {
            assert_eq!(Failure::spelled(code, "x").reason(), want, "{code}");
        }
        assert_eq!(Failure::Io(io::ErrorKind::Other.into()).reason(), None);
    }

    #[test]
    fn a_pause_is_waited_for_and_a_refusal_is_told() {
        assert_eq!(ask(&["HTTP/1.0 200 OK\r\nX: y\r\n\r\nabc"]), Ok("abc".to_owned()));
        let later = ["HTTP/1.0 503 x\r\nretry-after: 0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nabc"];
        assert_eq!(ask(&later), Ok("abc".to_owned()));
        let refused = ask(&[
            "HTTP/1.0 503 x\r\nx-flotilla-code: git_busy\r\nRetry-After: 999\r\n\r\nlater (git_busy)\n",
        ]);
        assert_eq!(refused, Err("later (git_busy)".to_owned()));
        let refused = ask(&["HTTP/1.0 404 x\r\nX-Flotilla-Code: git_lfs_missing\r\n\r\n<html>"]);
        assert_eq!(refused, Err("the door answered 404 (git_lfs_missing)".to_owned()));
        for broken in [&[""][..], &["HTTP/1.0 200 OK\r\n"], &["nonsense\r\n\r\n"]] {
            let refused = ask(broken).unwrap_err();
            assert!(refused.contains("(git_interrupted)"), "{refused}");
        }
    }
}
