//! The walls around a git, with the real program. For each wall, the same git runs without it and gets through.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

const FILE_BYTES: u64 = 1024 * 1024;

/// A directory with a repository, and another one outside of it.
struct Testbed {
    place: TempDir,
    outside: TempDir,
}

impl Testbed {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let repository = place.path().join("repository");
        for directory in ["objects/pack", "refs/heads"] {
            fs::create_dir_all(repository.join(directory)).unwrap();
        }
        fs::write(repository.join("HEAD"), "ref: refs/heads/none\n").unwrap();
        fs::write(repository.join("config"), "[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
            .unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("key"), "secret\n").unwrap();
        Self { place, outside }
    }

    fn key(&self) -> String {
        self.outside.path().join("key").display().to_string()
    }

    /// Git behind its walls, or the same without.
    fn command(&self, has_walls: bool, arguments: &[&str]) -> Command {
        let mut command = if has_walls {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flotilla-git"));
            command.arg("--git").arg(git()).arg("--directory").arg(self.place.path());
            command.args(["--file-bytes-max", &FILE_BYTES.to_string(), "--"]);
            command
        } else {
            Command::new(git())
        };
        command.args(arguments).env_clear().current_dir(self.place.path());
        command.env("GIT_DIR", self.place.path().join("repository"));
        command.envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("HOME", "/"),
            ("PATH", "/usr/bin:/bin"),
        ]);
        command
    }

    fn run(&self, has_walls: bool, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(has_walls, arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A git that was ended does not read all of it.
        drop(child.stdin.take().unwrap().write_all(input));
        child.wait_with_output().unwrap()
    }

    fn succeeds(&self, has_walls: bool, arguments: &[&str], input: &[u8]) -> bool {
        self.run(has_walls, arguments, input).status.success()
    }
}

fn git() -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&paths).map(|path| path.join("git")).find(|file| file.is_file()).expect("git")
}

#[test]
fn git_works_behind_its_walls() {
    let testbed = Testbed::new();
    let output = testbed.run(true, &["hash-object", "-w", "--stdin"], b"content\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object = String::from_utf8(output.stdout).unwrap();
    let output = testbed.run(true, &["cat-file", "blob", object.trim()], b"");
    assert_eq!(output.stdout, b"content\n");
    let pack =
        testbed.run(true, &["-c", "pack.threads=1", "pack-objects", "--stdout", "-q"], object.as_bytes());
    let other = Testbed::new();
    let loaded = other.run(true, &["index-pack", "--stdin", "--strict"], &pack.stdout);
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    assert!(other.succeeds(true, &["cat-file", "-e", object.trim()], b""));
}

#[test]
fn nothing_outside_its_directory_is_read_or_written() {
    let testbed = Testbed::new();
    let (key, copy) = (testbed.key(), testbed.outside.path().join("copy").display().to_string());
    let archive = format!("--output={copy}");
    let read = ["hash-object", "--no-filters", &key];
    let environment = ["hash-object", "--no-filters", "/proc/self/environ"];
    let write = ["diff", "--no-index", &archive, "repository/HEAD", "repository/config"];
    // The key is readable, and the copy would be written.
    assert!(testbed.succeeds(false, &read, b"") && testbed.succeeds(false, &environment, b""));
    testbed.run(false, &write, b"");
    fs::remove_file(&copy).expect("written without the walls");
    assert!(!testbed.succeeds(true, &read, b"") && !testbed.succeeds(true, &environment, b""));
    testbed.run(true, &write, b"");
    assert!(!Path::new(&copy).exists());
    // A link inside its directory leads nowhere.
    std::os::unix::fs::symlink(&key, testbed.place.path().join("link")).unwrap();
    let link = ["hash-object", "--no-filters", "link"];
    assert!(testbed.succeeds(false, &link, b"") && !testbed.succeeds(true, &link, b""));
}

#[test]
fn no_second_program_starts_and_no_connection_is_made() {
    let testbed = Testbed::new();
    let mark = testbed.place.path().join("mark");
    let alias = format!("alias.run=!touch {}", mark.display());
    assert!(!testbed.succeeds(true, &["-c", &alias, "run"], b"") && !mark.exists());
    assert!(testbed.succeeds(false, &["-c", &alias, "run"], b"") && mark.exists());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    // Over git's own protocol, git needs no other program to connect.
    let url = format!("git://{}/app", listener.local_addr().unwrap());
    assert!(!testbed.succeeds(true, &["ls-remote", &url], b""));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut child = testbed.command(false, &["ls-remote", &url]).stderr(Stdio::null()).spawn().unwrap();
    listener.set_nonblocking(false).unwrap();
    drop(listener.accept().unwrap());
    child.wait().unwrap();
}

#[test]
fn it_has_limits() {
    let testbed = Testbed::new();
    // Bytes that no packing makes smaller.
    let mut random = vec![0; 2 * FILE_BYTES as usize];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    let write = ["hash-object", "-w", "--stdin"];
    assert!(!testbed.succeeds(true, &write, &random) && testbed.succeeds(true, &write, &random[..1_000]));
    assert!(testbed.succeeds(false, &write, &random));
    let mut child = waiting(&testbed);
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    for (name, value) in [
        ("Max cpu time", "120"),
        ("Max file size", "1048576"),
        ("Max address space", "2147483648"),
        ("Max core file size", "0"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let hard = line.strip_prefix(name).unwrap().split_whitespace().nth(1);
        assert_eq!(hard, Some(value), "{line}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// A git that answered once and waits for more input.
fn waiting(testbed: &Testbed) -> Child {
    let mut command = testbed.command(true, &["cat-file", "--batch-check"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"HEAD\n").unwrap();
    let mut answer = [0; 12];
    child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HEAD missing");
    child
}

#[test]
fn it_ends_with_its_parent() {
    let testbed = Testbed::new();
    // The shell is the parent. Git waits for input, which this test never ends.
    let walled = testbed.command(true, &["cat-file", "--batch-check"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\"; true", "sh"]).arg(walled.get_program()).args(walled.get_args());
    shell.env_clear().envs(walled.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (input, mut writer) = std::io::pipe().unwrap();
    let mut shell = shell.stdin(input).stdout(Stdio::piped()).spawn().unwrap();
    writer.write_all(b"HEAD\n").unwrap();
    let mut output = shell.stdout.take().unwrap();
    let mut answer = [0; 12];
    output.read_exact(&mut answer).unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    // The output ends when the last process that has it is gone.
    output.read_to_end(&mut vec![]).unwrap();
    drop(writer);
}
