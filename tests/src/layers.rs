//! Layers of images, made of what this machine has installed.

use anyhow::{Context as _, Result, ensure};
use std::process::Command;

/// Makes a layer of Debian packages.
const PACKAGES_SCRIPT: &str = include_str!("layers/packages.sh");
/// Makes a layer of a part of the Rust toolchain.
const RUST_SCRIPT: &str = include_str!("layers/rust.sh");

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
    archive(PACKAGES_SCRIPT, names).context("make a layer of Debian's packages")
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
    archive(RUST_SCRIPT, &[name]).context("make a layer of the Rust toolchain")
}

/// What a script prints: an archive.
fn archive(script: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("bash").args(["-c", script, "layer"]).args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}
