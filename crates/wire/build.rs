//! Compiles the messages of proto/flotilla/v1 without a system protoc.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let package = root.join("flotilla/v1");
    let entries: Result<Vec<_>, _> = fs::read_dir(&package)?.collect();
    let mut files: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    prost_build::Config::new()
        .bytes([
            ".flotilla.v1.Event.properties_json",
            ".flotilla.v1.ExecOutput.data",
            ".flotilla.v1.TerminalOutput.data",
        ])
        .compile_fds(protox::compile(&files, [&root])?)?;
    println!("cargo:rerun-if-changed={}", package.display());
    Ok(())
}
