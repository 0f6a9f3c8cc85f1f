//! Git in the directory of a push, behind the walls of `flotilla-git`: it has no network and no secret, and ends with its push.

use super::{
    directories::{PushDirectory, REPOSITORY},
    error::{PushError, plain},
};
use anyhow::{Context as _, bail, ensure};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
};

/// The program that raises the walls. Every installation has it in the directory of `flotilla`.
const PROGRAM: &str = "flotilla-git";
/// Where git is looked for by a broker without `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Bytes of the error output that are kept. The rest is dropped.
const ERROR_BYTES_MAX: u64 = 4 * 1024;
/// Bytes that a git prints: paths and names of objects of [`domain::egress::push::PUSH_CHANGES_MAX`] changes. Beyond it: `push_too_large`.
const OUTPUT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of the largest file that git may write: the pack of a base commit. Beyond it: `push_content_invalid`.
const WRITTEN_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// The oldest git that takes all arguments of this module.
const VERSION_MIN: (u32, u32) = (2, 31);
/// One thread, since the walls allow no second one, and little memory for large files.
const SETTINGS: [&str; 9] = [
    "pack.threads=1",
    "index.threads=1",
    "core.packedGitLimit=256m",
    "core.packedGitWindowSize=32m",
    "core.bigFileThreshold=16m",
    "core.deltaBaseCacheLimit=64m",
    "core.commitGraph=false",
    "core.multiPackIndex=false",
    "pack.windowMemory=256m",
];

#[derive(Debug)]
pub(super) struct WalledGit {
    walls: PathBuf,
    git: PathBuf,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Input<'a> {
    Nothing,
    Bytes(&'a [u8]),
    /// A file of the directory.
    File(&'a str),
}

/// Where the output of a git goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Output<'a> {
    /// It is returned, if it has at most so many bytes.
    Bytes(usize),
    /// A file of the directory.
    File(&'a str),
}

#[derive(Debug)]
pub(super) struct GitEnd {
    pub(super) is_success: bool,
    pub(super) output: Vec<u8>,
    /// The beginning of what it printed as errors, for people.
    pub(super) errors: String,
}

impl WalledGit {
    /// Finds the programs, and checks on this machine that the walls stand: that a git behind them can read none of `secrets`, nor what stands next to
    /// its directory.
    ///
    /// # Errors
    /// If a program is missing or too old, or a wall does not stand.
    pub(super) async fn find(directory: &PushDirectory, secrets: &[&Path]) -> anyhow::Result<Self> {
        let walls =
            chassis::programs::find(PROGRAM).context("find the program that runs git behind walls")?;
        let paths = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
        let git =
            std::env::split_paths(&paths).map(|directory| directory.join("git")).find(|file| file.is_file());
        let git = git.context("find git in PATH: install it (`apt-get install git`)")?;
        let own = Self { walls, git };
        let ended = own.run(directory, &["version"], Input::Nothing, Output::Bytes(1_024)).await;
        let GitEnd { is_success, output, errors } = ended.context("start git behind its walls")?;
        ensure!(is_success, "start git behind its walls: {errors}");
        let version = String::from_utf8_lossy(&output).into_owned();
        ensure!(is_new_enough(&version), "git 2.31 or newer is needed, this is {}", version.trim());
        for file in secrets.iter().copied().chain([directory.mark()]) {
            own.check_walls(directory, file).await?;
        }
        directory.make_repository("sha1").await.context("make a repository")?;
        let arguments = ["hash-object", "-w", "--stdin"];
        let written = own.run(directory, &arguments, Input::Nothing, Output::Bytes(1_024)).await;
        let written = written.context("write behind the walls")?;
        ensure!(written.is_success, "write behind the walls: {}", written.errors);
        Ok(own)
    }

    /// Checks that a git behind the walls cannot read a file. One that is missing has nothing to read yet.
    async fn check_walls(&self, directory: &PushDirectory, file: &Path) -> anyhow::Result<()> {
        let file = match file.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.context("find a file to check the walls with")?,
        };
        let path = file.to_str().context("the path of a secret file is no text")?;
        let arguments = ["hash-object", "--no-filters", path];
        let read = self.run(directory, &arguments, Input::Nothing, Output::Bytes(1_024)).await;
        if read.context("check the walls")?.is_success {
            bail!("the walls of {PROGRAM} do not stand: a git behind them can read {path}");
        }
        Ok(())
    }

    /// Runs a git whose failure is ours, and gives its output.
    pub(super) async fn check(
        &self,
        directory: &PushDirectory,
        arguments: &[&str],
        input: Input<'_>,
    ) -> Result<Vec<u8>, PushError> {
        let ended = self.run(directory, arguments, input, Output::Bytes(OUTPUT_BYTES_MAX)).await?;
        if ended.is_success {
            return Ok(ended.output);
        }
        let verb = arguments.first().copied().unwrap_or_default();
        Err(PushError::ContentInvalid(format!("git {verb} failed: {}", ended.errors)))
    }

    /// Runs a git. Others may run in the same directory at the same time.
    ///
    /// # Errors
    /// `Failed`; `TooLarge`: it prints more than it may.
    ///
    /// Dropped midway: it is killed.
    pub(super) async fn run(
        &self,
        directory: &PushDirectory,
        arguments: &[&str],
        input: Input<'_>,
        output: Output<'_>,
    ) -> Result<GitEnd, PushError> {
        let failed = |error: io::Error| PushError::failed("run git", &error);
        let place = directory.path();
        let mut command = self.command(place, arguments);
        command.stdin(match input {
            Input::Nothing => Stdio::null(),
            Input::Bytes(_) => Stdio::piped(),
            Input::File(name) => Stdio::from(File::open(place.join(name)).map_err(failed)?),
        });
        command.stdout(match output {
            Output::Bytes(_) => Stdio::piped(),
            Output::File(name) => Stdio::from(File::create(place.join(name)).map_err(failed)?),
        });
        command.stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async move {
            if let (Some(mut stdin), Input::Bytes(bytes)) = (stdin, input) {
                // A git that ended early says why by its exit status.
                drop(stdin.write_all(bytes).await);
            }
            Ok::<_, PushError>(())
        };
        let read = async move {
            let mut bytes = vec![];
            if let (Some(stdout), Output::Bytes(most)) = (stdout, output) {
                stdout.take(most as u64 + 1).read_to_end(&mut bytes).await.map_err(failed)?;
                if bytes.len() > most {
                    return Err(PushError::TooLarge { most: most as u64, what: "bytes of names and paths" });
                }
            }
            Ok(bytes)
        };
        let read_errors = async move {
            let mut bytes = vec![];
            if let Some(mut stderr) = stderr {
                (&mut stderr).take(ERROR_BYTES_MAX).read_to_end(&mut bytes).await.map_err(failed)?;
                // A git must not wait until somebody reads the rest.
                tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await.map_err(failed)?;
            }
            Ok::<_, PushError>(bytes)
        };
        let ((), output, errors) = tokio::try_join!(write, read, read_errors)?;
        let status = child.wait().await.map_err(failed)?;
        Ok(GitEnd { is_success: status.success(), output, errors: explain(&errors, status.code()) })
    }

    fn command(&self, place: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.walls);
        command.arg("--git").arg(&self.git).arg("--directory").arg(place);
        command.arg("--file-bytes-max").arg(WRITTEN_FILE_BYTES_MAX.to_string()).arg("--");
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command.args(arguments).env_clear().envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("HOME", "/"),
            ("LC_ALL", "C"),
            ("PATH", "/usr/bin:/bin"),
        ]);
        command.env("GIT_DIR", place.join(REPOSITORY)).current_dir("/");
        // The signals of a terminal are for the broker.
        command.process_group(0).kill_on_drop(true);
        command
    }
}

/// The line in which git says why, without what only a terminal needs. The walls end a git by a signal, without a line.
fn explain(errors: &[u8], code: Option<i32>) -> String {
    let text = String::from_utf8_lossy(errors);
    // The last line may only say that something failed.
    let lines = || text.lines().rev().filter(|line| !line.trim().is_empty());
    let line = lines().find(|line| line.starts_with("error: ")).or_else(|| lines().next());
    match (line, code) {
        (Some(line), _) => plain(line),
        (None, Some(code)) => format!("it ended with {code} and printed no error"),
        (None, None) => "it needed more memory, time or space than it may have".to_owned(),
    }
}

/// Reads `git version 2.47.3`.
fn is_new_enough(text: &str) -> bool {
    let version = text.split_whitespace().nth(2).unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    matches!((parts.next().flatten(), parts.next().flatten()), (Some(major), Some(minor)) if (major, minor) >= VERSION_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read() {
        for (text, want) in [
            ("git version 2.47.3\n", true),
            ("git version 2.31.0 (Apple Git-1)", true),
            ("git version 3.0", true),
            ("git version 2.30.9", false),
            ("git", false),
        ] {
            assert_eq!(is_new_enough(text), want, "{text}");
        }
    }

    #[test]
    fn an_error_is_one_clean_line() {
        assert_eq!(explain(b"a\nfatal: \x1b[31mbad\n\n", Some(128)), "fatal: [31mbad");
        assert_eq!(explain(b"error: why\nfatal: it failed\n", Some(128)), "error: why");
        assert!(explain(b"", None).contains("more memory"));
    }
}
