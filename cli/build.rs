//! Tells the program its version, with the commit that it is built from if that is a checkout of this repository.

use std::{env, path::Path, process::Command};

/// Names the commit for a build without a checkout.
const COMMIT: &str = "FLOTILLA_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let version = env!("CARGO_PKG_VERSION");
    match env::var(COMMIT).ok().or_else(find_commit) {
        Some(commit) => {
            println!("cargo::rustc-env={COMMIT}={commit}");
            println!("cargo::rustc-env=FLOTILLA_VERSION={version} ({commit})");
        }
        None => println!("cargo::rustc-env=FLOTILLA_VERSION={version}"),
    }
}

fn find_commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.canonicalize().ok()?;
    // The sources may lie inside of another repository, whose commits say nothing about them.
    if Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // Git writes a line there whenever another commit is checked out.
    let log = root.join(git(&root, &["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    git(&root, &["rev-parse", "--short=10", "HEAD"])
}

fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
