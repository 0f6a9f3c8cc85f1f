//! OpenCode's program, as `./dev` installs it with npm.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};
use tempfile::TempDir;
use tokio::process::Command;

/// The directory of the npm packages, from the root of this repository.
const MODULES: &str = ".flotilla/tools/node_modules";
/// Environment that keeps the program from contacting anything but its server and its model.
const QUIET: [&str; 4] = [
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
];

/// Finds the directory of a package, if it is installed.
pub fn find_package(package: &str) -> Option<PathBuf> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(MODULES);
    Some(modules.join(package)).filter(|package| package.exists())
}

/// OpenCode's program with a separate home directory.
#[derive(Debug)]
pub struct OpenCode {
    program: PathBuf,
    home: TempDir,
}

impl OpenCode {
    /// Finds the program for this machine, if it is installed.
    pub fn find() -> Option<Self> {
        let package = find_package("opencode-ai")?;
        // `./dev` lets npm run no install script, so the program is not in this package. npm keeps the packages with the programs for this machine next to it.
        let packages = fs::read_dir(package.parent()?).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_program = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("opencode-"))
        };
        let mut programs: Vec<PathBuf> = packages
            .filter(is_program)
            .map(|path| path.join("bin/opencode"))
            .filter(|path| path.exists())
            .collect();
        // The plain program needs a newer processor than the baseline, which runs anywhere.
        programs.sort_by_key(|path| !path.to_string_lossy().contains("baseline"));
        let home = tempfile::Builder::new().prefix("flotilla-opencode-").tempdir().ok()?;
        Some(Self { program: programs.into_iter().next()?, home })
    }

    /// Returns the directory of its files.
    pub fn directory(&self) -> &Path {
        self.home.path()
    }

    /// Creates a command that ends when the value is dropped.
    pub fn command(&self, arguments: &[&str]) -> Command {
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
