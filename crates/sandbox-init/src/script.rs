//! `flotilla-init script <tree> <script> [<NAME=value>…]`: runs the script of a setup or an install with the secrets from the session's door, and with these
//! variables. The values stay inside this sandbox: the program masks them in the output, and fails a script that leaves one in a file of `tree`.

mod leftovers;
mod needles;
mod redactor;

use super::{door::forward, starter};
use domain::egress::secrets::{
    AnswerError, SECRETS_ANSWER_BYTES_MAX, SECRETS_PASSING_CODE, SECRETS_SOCKET, decode,
};
use needles::Needles;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redactor::Redactor;
use std::{
    ffi::{OsStr, OsString},
    io::{self, PipeReader, Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::{ffi::OsStrExt as _, net::UnixStream, process::ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus},
    time::{Duration, Instant, SystemTime},
};

/// How long the broker may be away or give no secrets, for example while it starts again. Then the service may try again.
const BROKER_WAIT: Duration = Duration::from_secs(10);
/// Pause before the second attempt to get the secrets. It doubles up to the longest one.
const BROKER_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_BROKER_PAUSE: Duration = Duration::from_secs(2);
/// How long the broker may take to open the secrets.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Pause between two looks whether the script has ended, while a process that it left holds its output open.
const LOOK_MS: u16 = 50;
/// How long such a process is listened to after the end of the script.
const DRAIN: Duration = Duration::from_millis(200);
/// Bytes of output that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// The script of a setup or an install.
#[derive(Debug)]
pub(super) struct Script {
    /// Where sessions will see what it leaves.
    tree: PathBuf,
    text: OsString,
    /// Variables that would change how this program itself starts.
    variables: Vec<OsString>,
}

/// Why a script did not run to its end, or left what it must not.
#[derive(Debug)]
enum Failure {
    /// Another attempt may succeed.
    Passing(String),
    Final(String),
}

impl Script {
    /// Reads the arguments after the first one.
    pub(super) fn from_arguments(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let (tree, text) = (arguments.next()?.into(), arguments.next()?);
        Some(Self { tree, text, variables: arguments.collect() })
    }

    /// Runs the script and gives its exit code. Any other failure prints one line, and has an exit code of its own.
    pub(super) fn run(&self) -> ExitCode {
        match self.try_run() {
            Ok(status) => {
                let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
                // The script's own code of this number is a failure like any other.
                let code = u8::try_from(code).ok().filter(|code| *code != SECRETS_PASSING_CODE).unwrap_or(1);
                ExitCode::from(code)
            }
            Err(Failure::Final(text)) => tell(&text, ExitCode::FAILURE),
            Err(Failure::Passing(text)) => tell(&text, ExitCode::from(SECRETS_PASSING_CODE)),
        }
    }

    fn try_run(&self) -> Result<ExitStatus, Failure> {
        let secrets = fetch()?;
        let too_long = |error| Failure::Final(format!("the secrets are too long: {error}"));
        let shown = Needles::of_output(&secrets).map_err(too_long)?;
        let kept = Needles::of_files(&secrets).map_err(too_long)?;
        let begun_at = SystemTime::now();
        let failed = |error: io::Error| Failure::Final(format!("the script cannot run: {error}"));
        let (output, mut child) = self.start(&secrets).map_err(failed)?;
        let status = show(output, &mut child, Redactor::new(&shown)).map_err(failed)?;
        if status.success() {
            let checked = leftovers::check(&self.tree, begun_at, &kept);
            // A path may have a value.
            checked.map_err(|text| Failure::Final(Redactor::redacted(&shown, &text)))?;
        }
        Ok(status)
    }

    fn start(&self, secrets: &[(String, String)]) -> io::Result<(PipeReader, Child)> {
        let (output, end) = io::pipe()?;
        let shells = starter::shells();
        let mut shells = shells.iter().map(|shell| Path::new(OsStr::from_bytes(shell.to_bytes())));
        let shell = shells.find(|shell| shell.exists()).ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(shell);
        let variables = self.variables.iter().filter_map(|variable| variable.to_str()?.split_once('='));
        command.arg("-c").arg(&self.text).envs(variables);
        command.envs(secrets.iter().map(|(name, value)| (name, value)));
        let child = command.stdout(end.try_clone()?).stderr(end).spawn()?;
        Ok((output, child))
    }
}

fn tell(text: &str, code: ExitCode) -> ExitCode {
    // The exit code reports the failure even if the output is closed.
    drop(writeln!(io::stdout(), "flotilla: {text}"));
    code
}

/// Gets the secrets from the door.
fn fetch() -> Result<Vec<(String, String)>, Failure> {
    let socket = Path::new(forward::DIRECTORY).join(SECRETS_SOCKET);
    let (until, mut pause) = (Instant::now() + BROKER_WAIT, BROKER_PAUSE);
    loop {
        let passing = match ask(&socket) {
            Ok(Ok(secrets)) => return Ok(secrets),
            Ok(Err(AnswerError::Refused(text))) => return Err(Failure::Final(text)),
            Ok(Err(AnswerError::Passing(text))) => text,
            Ok(Err(error @ AnswerError::Incomplete)) => format!("{error} (broker_unavailable)"),
            Err(error) => format!("the broker does not answer: {error} (broker_unavailable)"),
        };
        if Instant::now() >= until {
            return Err(Failure::Passing(passing));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_BROKER_PAUSE);
    }
}

fn ask(socket: &Path) -> io::Result<Result<Vec<(String, String)>, AnswerError>> {
    let door = UnixStream::connect(socket)?;
    door.set_read_timeout(Some(ANSWER_WAIT))?;
    let mut answer = Vec::new();
    door.take(SECRETS_ANSWER_BYTES_MAX as u64).read_to_end(&mut answer)?;
    Ok(decode(&answer))
}

/// Shows what the script prints until it ends.
fn show(mut output: PipeReader, child: &mut Child, mut redactor: Redactor<'_>) -> io::Result<ExitStatus> {
    let mut shown = io::stdout();
    let mut buffer = vec![0; READ_BYTES];
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        let has_output =
            poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], PollTimeout::from(LOOK_MS))? > 0;
        if has_output {
            match output.read(&mut buffer)? {
                0 => break,
                bytes => shown.write_all(&redactor.push(&buffer[..bytes]))?,
            }
            shown.flush()?;
        }
        match ended {
            Some((_, at)) if !has_output || at.elapsed() >= DRAIN => break,
            Some(_) => {}
            None => ended = child.try_wait()?.map(|status| (status, Instant::now())),
        }
    }
    shown.write_all(&redactor.finish())?;
    shown.flush()?;
    child.wait()
}
