//! The real clients, as installed by `./dev test`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};
use tempfile::TempDir;
use tokio::process::Command;

/// The directory of the npm packages, from the root of this repository.
const MODULES: &str = ".flotilla/tools/node_modules";
/// Environment that keeps a client from contacting anything but its server.
const QUIET: [&str; 4] = [
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
];

/// Returns the directory of a package. If it is not installed, records that the test is skipped.
pub(super) fn find(package: &str) -> Option<PathBuf> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(MODULES);
    let found = modules.join(package);
    if found.exists() {
        return Some(found);
    }
    e2e::left_out::skip(&format!("{package} is not installed; `./dev test` installs it with npm"));
    None
}

/// OpenCode's program with a separate home directory.
pub(super) struct OpenCode {
    program: PathBuf,
    home: TempDir,
}

impl OpenCode {
    /// Finds the program for this machine, if it is installed.
    pub(super) fn find() -> Option<Self> {
        let package = find("opencode-ai")?;
        // A script that does not run here would install the program. npm keeps the programs that fit this machine beside it.
        let beside = fs::read_dir(package.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let mut programs: Vec<PathBuf> = beside
            .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("opencode-"))
            .map(|path| path.join("bin/opencode"))
            .filter(|path| path.exists())
            .collect();
        // The plain program needs a newer processor than the baseline, which runs anywhere.
        programs.sort_by_key(|path| !path.to_str().unwrap().contains("baseline"));
        let home = tempfile::Builder::new().prefix("flotilla-opencode-").tempdir().unwrap();
        Some(Self { program: programs.into_iter().next().expect("a program for this machine"), home })
    }

    /// Returns the directory of its files.
    pub(super) fn directory(&self) -> &str {
        self.home.path().to_str().unwrap()
    }

    /// Creates a command that ends when the value is dropped.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"))
            // It unpacks libraries into this directory and leaves them there.
            .env("TMPDIR", self.home.path())
            .env("HOME", self.home.path())
            .envs(
                ["CONFIG", "DATA", "STATE", "CACHE"]
                    .map(|kind| (format!("XDG_{kind}_HOME"), self.home.path().join(kind.to_lowercase()))),
            )
            .envs(QUIET.map(|name| (name, "1")))
            .envs([("LANG", "C.UTF-8"), ("TERM", "xterm-256color")])
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}
