//! `flotilla-init script <tree> <script>`: runs the script of a setup or an install with the secrets that the door of its session gives. Nobody outside this
//! sandbox sees them: what the script prints is shown without their values, and a script that leaves a value in a file of `tree`, where sessions
//! could read it, fails.

mod leftovers;
mod needles;
mod redactor;

use super::{forward, starter::SHELLS};
use domain::egress::secrets::{AnswerError, SECRETS_ANSWER_BYTES_MAX, SECRETS_SOCKET, decode};
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

/// How long the broker may be away, for example while it starts again.
const BROKER_WAIT: Duration = Duration::from_secs(20);
/// Pause between two attempts to reach it.
const BROKER_PAUSE: Duration = Duration::from_millis(200);
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
}

impl Script {
    /// Reads the arguments after the first one.
    pub(super) fn of(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        Some(Self { tree: arguments.next()?.into(), text: arguments.next()? })
    }

    /// Runs it, and gives its exit code. What goes wrong beside it is told in the output, and fails it.
    pub(super) fn run(&self) -> ExitCode {
        match self.try_run() {
            Ok(status) => {
                let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
                ExitCode::from(u8::try_from(code).unwrap_or(1))
            }
            Err(text) => {
                // The script ends with an error, whoever reads this.
                drop(writeln!(io::stdout(), "flotilla: {text}"));
                ExitCode::FAILURE
            }
        }
    }

    fn try_run(&self) -> Result<ExitStatus, String> {
        let variables = fetch()?;
        let needles =
            Needles::of(&variables).map_err(|error| format!("the secrets are too long: {error}"))?;
        let begun_at = SystemTime::now();
        let failed = |error: io::Error| format!("the script cannot run: {error}");
        let (output, mut child) = self.start(&variables).map_err(failed)?;
        let status = show(output, &mut child, Redactor::new(&needles)).map_err(failed)?;
        if status.success() {
            leftovers::check(&self.tree, begun_at, &needles)?;
        }
        Ok(status)
    }

    fn start(&self, variables: &[(String, String)]) -> io::Result<(PipeReader, Child)> {
        let (output, end) = io::pipe()?;
        let mut shells = SHELLS.iter().map(|shell| Path::new(OsStr::from_bytes(shell.to_bytes())));
        let shell = shells.find(|shell| shell.exists()).ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(shell);
        command.arg("-c").arg(&self.text).envs(variables.iter().map(|(name, value)| (name, value)));
        let child = command.stdout(end.try_clone()?).stderr(end).spawn()?;
        Ok((output, child))
    }
}

/// Gets the secrets from the door.
///
/// # Errors
/// Why there are none, for people.
fn fetch() -> Result<Vec<(String, String)>, String> {
    let socket = Path::new(forward::DIRECTORY).join(SECRETS_SOCKET);
    let until = Instant::now() + BROKER_WAIT;
    loop {
        match ask(&socket) {
            Ok(Ok(variables)) => return Ok(variables),
            Ok(Err(AnswerError::Refused(text))) => return Err(text),
            Ok(Err(AnswerError::Incomplete)) | Err(_) if Instant::now() < until => {
                std::thread::sleep(BROKER_PAUSE)
            }
            Ok(Err(error)) => return Err(format!("{error} (broker_unavailable)")),
            Err(error) => {
                return Err(format!(
                    "the broker, which has the secrets, does not answer: {error} (broker_unavailable)"
                ));
            }
        }
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
