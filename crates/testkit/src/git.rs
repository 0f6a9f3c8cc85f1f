//! Small repositories and their bundles, made with the `git` program, independent of the machine's git configuration.

use domain::text;
use sha2::{Digest as _, Sha256};
use std::os::unix::fs::PermissionsExt as _;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// The settings of a repository. Neither a commit nor a push starts a process that looks for something to pack.
const CONFIG: &str =
    "[core]\n\trepositoryFormatVersion = 0\n[maintenance]\n\tauto = false\n[receive]\n\tautoGc = false\n";

/// A repository in a temporary directory that is removed with this value.
#[derive(Debug)]
pub struct Repository {
    dir: TempDir,
    /// The commit that is checked out.
    pub commit: String,
}

/// A bundle, ready to be uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    pub bytes: Vec<u8>,
    /// Their SHA-256; lower-case hexadecimal.
    pub sha256: String,
}

/// Creates a repository with `(path, content)` files in one commit on branch `main`. A file that begins with `#!`
/// becomes executable.
pub fn repository(files: &[(&str, &str)]) -> Repository {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (path, content) in files {
        let file = dir.path().join(path);
        fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
        fs::write(&file, content).expect("a file");
        if content.starts_with("#!") {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a permission");
        }
    }
    let git_directory = dir.path().join(".git");
    init(&git_directory);
    run(dir.path(), &["add", "--all"], "");
    run(dir.path(), &["commit", "--quiet", "--allow-empty", "--message=first"], "");
    let commit = fs::read_to_string(git_directory.join("refs/heads/main")).expect("a commit");
    Repository { dir, commit: commit.trim_end().to_owned() }
}

/// Makes an empty repository whose branch is `main`, as `git init` does, but without a process. `git_directory` is the `.git` of
/// a checkout, or a bare repository.
pub fn init(git_directory: &Path) {
    for name in ["objects/pack", "refs/heads"] {
        fs::create_dir_all(git_directory.join(name)).expect("a directory");
    }
    for (name, content) in [("HEAD", "ref: refs/heads/main\n"), ("config", CONFIG)] {
        fs::write(git_directory.join(name), content).expect("a file");
    }
}

impl Repository {
    pub fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Runs git in the repository and returns its output, without the last line ending.
    pub fn git(&self, arguments: &[&str]) -> String {
        run(self.dir.path(), arguments, "")
    }

    /// Publishes the checked-out commit as `main` of a bare repository, and makes that repository if it is missing. `git push` needs eight processes.
    pub(crate) fn publish(&self, bare: &Path) {
        if !bare.exists() {
            init(bare);
        }
        let pack = bare.join("objects/pack/pack");
        let pack = pack.to_str().expect("a path in UTF-8");
        run(self.dir.path(), &["pack-objects", "--quiet", "--revs", pack], "HEAD\n");
        run(bare, &["update-ref", "refs/heads/main", &self.git(&["rev-parse", "HEAD"])], "");
    }

    /// Returns a bundle of all branches with their history.
    pub fn bundle(&self) -> Bundle {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let name = file.path().to_str().expect("a path in UTF-8");
        // One thread makes the bytes deterministic.
        self.git(&["-c", "pack.threads=1", "bundle", "create", "--quiet", name, "--branches", "HEAD"]);
        let bytes = fs::read(file.path()).expect("a bundle");
        let sha256 = text::hex(&Sha256::digest(&bytes));
        Bundle { bytes, sha256 }
    }
}

fn run(dir: &Path, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("git")
        .current_dir(dir)
        .args(arguments)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .envs([("GIT_AUTHOR_NAME", "Test"), ("GIT_AUTHOR_EMAIL", "test@example.org")])
        .envs([("GIT_COMMITTER_NAME", "Test"), ("GIT_COMMITTER_EMAIL", "test@example.org")])
        // Fixed dates: identical files give the same commit.
        .envs([("GIT_AUTHOR_DATE", "2026-01-01T00:00:00Z"), ("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git");
    // Closes the pipe at the end of the statement.
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("a reader");
    let output = child.wait_with_output().expect("an end");
    let (stderr, stdout) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "git {}: {stderr}", arguments.join(" "));
    stdout.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn a_bundle_holds_the_files_and_is_deterministic() {
        let files = [("a.txt", "one\n"), ("src/b.txt", "two\n")];
        let (first, second) = (repository(&files), repository(&files));
        assert_eq!((&first.commit, first.bundle()), (&second.commit, second.bundle()));
        let bundle = first.bundle();
        let clone = tempfile::tempdir().unwrap();
        fs::write(clone.path().join("bundle"), &bundle.bytes).unwrap();
        run(clone.path(), &["clone", "--quiet", "bundle", "made"], "");
        assert_eq!(fs::read_to_string(clone.path().join("made/src/b.txt")).unwrap(), "two\n");
        assert_eq!(bundle.sha256.len(), 64);
    }
}
