//! Layers of images, made of what this machine has installed.

use anyhow::{Context as _, Result, ensure};
use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// Makes a layer of Debian packages.
const PACKAGES_SCRIPT: &str = include_str!("layers/packages.sh");
/// Makes a layer of a part of the Rust toolchain.
const RUST_SCRIPT: &str = include_str!("layers/rust.sh");
/// Makes a layer of files below a directory.
const FILES_SCRIPT: &str = "tar --create --dereference --owner=0 --group=0 --directory \"$@\"";
/// Lists what programs load.
const LIBRARIES_SCRIPT: &str = "ldd \"$@\"";

/// A part of the Rust toolchain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RustPart {
    /// Cargo and the compiler.
    Compiler,
    /// The standard library of this machine's target.
    Library,
}

/// Debian's packages of these names with everything that they depend on, as this machine has them. Dpkg finds them installed in the image.
///
/// # Errors
/// The machine lacks a package, or is no Debian.
pub fn packages(names: &[&str]) -> Result<Vec<u8>> {
    run(PACKAGES_SCRIPT, names).context("make a layer of Debian's packages")
}

/// A part of this machine's Rust toolchain, below `/usr/local`.
///
/// # Errors
/// The machine has no toolchain.
pub fn rust(part: RustPart) -> Result<Vec<u8>> {
    let name = match part {
        RustPart::Compiler => "compiler",
        RustPart::Library => "library",
    };
    run(RUST_SCRIPT, &[name]).context("make a layer of the Rust toolchain")
}

/// Programs of this machine, with the libraries that they load.
///
/// # Errors
/// The machine lacks a program.
pub fn programs(paths: &[&str]) -> Result<Vec<u8>> {
    let listed = String::from_utf8(run(LIBRARIES_SCRIPT, paths)?)?;
    // The list of several programs has the path of each, with a colon.
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
    let all: BTreeSet<&str> = libraries.chain(paths.iter().copied()).collect();
    let names: Vec<&str> = all.into_iter().map(|path| path.trim_start_matches('/')).collect();
    files(Path::new("/"), &names)
}

/// A file below `/srv`.
///
/// # Errors
/// This machine cannot write the file.
pub fn file(name: &str, content: &str) -> Result<Vec<u8>> {
    let directory = tempfile::tempdir()?;
    fs::create_dir(directory.path().join("srv"))?;
    fs::write(directory.path().join("srv").join(name), content)?;
    files(directory.path(), &["srv"])
}

/// Files and directories below a directory of this machine.
///
/// # Errors
/// One of them is missing.
pub fn files(directory: &Path, names: &[&str]) -> Result<Vec<u8>> {
    let directory = directory.to_str().context("read the name of a directory")?;
    run(FILES_SCRIPT, &[&[directory][..], names].concat()).context("make a layer of files")
}

fn run(script: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("bash").args(["-c", script, "layer"]).args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}
