//! A copy of the sources that is built without one of its guards. The original sources stay unchanged.

use super::{edits::Edit, guard::Mutant};
use anyhow::{Context as _, Result, ensure};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The files that the build of `flotilla` reads; nothing else is copied.
const SOURCES: [&str; 8] =
    ["Cargo.toml", "Cargo.lock", "cli", "crates", "migrations", "proto", "services", "tests"];

/// A copy of the workspace's sources.
#[derive(Debug)]
pub struct Tree {
    /// The directory of the copy and of its build.
    directory: PathBuf,
}

impl Tree {
    /// Copies the sources of the workspace into its `target/mutants`.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn copy() -> Result<Self> {
        let workspace = workspace();
        let directory = workspace.join("target/mutants");
        let tree = Self { directory };
        fs::create_dir_all(tree.sources()).context("make the directory of the copy")?;
        for name in SOURCES {
            synchronize(&workspace.join(name), &tree.sources().join(name))?;
        }
        Ok(tree)
    }

    /// Builds `flotilla` without a guard and returns the path of the program. Restores the guard in the copy afterwards.
    ///
    /// # Errors
    /// If an edit does not match the sources, or the build fails.
    pub fn build_without(&self, mutant: Mutant) -> Result<PathBuf> {
        let edits = mutant.edits();
        let originals = self.read(&edits)?;
        let built = self.edit(&edits).and_then(|()| self.build());
        for (path, text) in originals {
            fs::write(&path, text).with_context(|| format!("restore {}", path.display()))?;
        }
        built.with_context(|| format!("build without the guard of {}", mutant.as_str()))?;
        let program = self.directory.join(format!("flotilla-{}", mutant.as_str()));
        let debug = self.directory.join("target/debug");
        fs::copy(debug.join("flotilla"), &program).context("keep the program")?;
        // The program looks for its helper programs in its own directory.
        for name in ["flotilla-init", "flotilla-convert", "flotilla-unpack", "flotilla-git"] {
            fs::copy(debug.join(name), self.directory.join(name)).with_context(|| format!("keep {name}"))?;
        }
        Ok(program)
    }

    fn sources(&self) -> PathBuf {
        self.directory.join("sources")
    }

    /// Reads the files of the copy that `edits` change. The workspace may have changed since it was copied.
    fn read(&self, edits: &[Edit]) -> Result<BTreeMap<PathBuf, String>> {
        let paths = edits.iter().map(|edit| self.sources().join(edit.file));
        let texts = paths.map(|path| {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            Ok((path, text))
        });
        texts.collect()
    }

    fn edit(&self, edits: &[Edit]) -> Result<()> {
        for edit in edits {
            let path = self.sources().join(edit.file);
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", edit.file))?;
            fs::write(&path, edit.apply(&text)?).with_context(|| format!("write {}", edit.file))?;
        }
        Ok(())
    }

    fn build(&self) -> Result<()> {
        let status = Command::new("cargo")
            .args(["build", "--offline", "--quiet"])
            .args(["--package", "flotilla", "--package", "sandbox-init", "--package", "convert"])
            .current_dir(self.sources())
            .env("CARGO_TARGET_DIR", self.directory.join("target"))
            // A removed guard leaves unused names.
            .env("RUSTFLAGS", "--cap-lints=allow")
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .status()
            .context("run cargo")?;
        ensure!(status.success(), "cargo exited with {status}");
        Ok(())
    }
}

impl Edit {
    /// Returns `text` without the guard.
    ///
    /// # Errors
    /// If `text` does not contain the guard exactly once.
    pub fn apply(&self, text: &str) -> Result<String> {
        let found = text.matches(self.guard).count();
        ensure!(found == 1, "{} contains the guard {found} times instead of once: {}", self.file, self.guard);
        Ok(text.replacen(self.guard, self.without, 1))
    }
}

/// Returns the root of the workspace that this program was built from.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// Makes `to` equal to `from`. Does not touch equal files, so that cargo does not rebuild them.
fn synchronize(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        let bytes = fs::read(from).with_context(|| format!("read {}", from.display()))?;
        if fs::read(to).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        return fs::write(to, bytes).with_context(|| format!("write {}", to.display()));
    }
    fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
    for name in names(from)? {
        synchronize(&from.join(&name), &to.join(&name))?;
    }
    for gone in names(to)?.into_iter().filter(|name| !from.join(name).exists()) {
        let path = to.join(gone);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

fn names(directory: &Path) -> Result<Vec<std::ffi::OsString>> {
    let entries = fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn synchronization_copies_changes_and_leaves_equal_files_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("a")).unwrap();
        for (name, text) in [("a/kept", "1"), ("a/changed", "2"), ("gone", "3")] {
            fs::write(from.join(name), text).unwrap();
        }
        synchronize(&from, &to).unwrap();
        let written_at = |name: &str| fs::metadata(to.join(name)).unwrap().modified().unwrap();
        let kept = written_at("a/kept");
        fs::write(from.join("a/changed"), "two").unwrap();
        fs::remove_file(from.join("gone")).unwrap();
        synchronize(&from, &to).unwrap();
        assert_eq!(written_at("a/kept"), kept);
        assert_eq!(fs::read_to_string(to.join("a/changed")).unwrap(), "two");
        assert!(!to.join("gone").exists());
    }

    #[test]
    fn an_edit_requires_its_guard_exactly_once() {
        let edit = Edit { mutant: Mutant::ParkBlind, file: "x.rs", guard: "if a", without: "if true" };
        assert_eq!(edit.apply("if a {}").unwrap(), "if true {}");
        assert!(edit.apply("if b {}").is_err());
        assert!(edit.apply("if a {} if a {}").is_err());
    }

    /// If a guard was rewritten, its edit must be updated. Otherwise the hunt would prove nothing.
    #[test]
    fn every_edit_matches_the_sources() {
        for mutant in Mutant::ALL {
            let edits = mutant.edits();
            assert!(!edits.is_empty(), "{} has no edits", mutant.as_str());
            for edit in edits {
                let text = fs::read_to_string(workspace().join(edit.file)).unwrap();
                let edited = edit.apply(&text).unwrap_or_else(|error| panic!("{}: {error}", mutant.as_str()));
                assert_ne!(edited, text, "{} changes nothing", mutant.as_str());
            }
        }
    }
}
