//! Compiles the messages of proto/flotilla/v1 without a system protoc, and hands their descriptors to dependent crates.

use std::{env, error::Error, ffi::OsStr, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let package = root.join("flotilla/v1");
    let entries: Result<Vec<_>, _> = fs::read_dir(&package)?.collect();
    let mut files: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension() == Some(OsStr::new("proto")));
    files.sort();
    let mut compiler = protox::Compiler::new([&root])?;
    let compiled = compiler.include_imports(true).include_source_info(true).open_files(files)?;
    let path = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    // With the options of methods, which the generated type of the descriptors drops.
    fs::write(&path, compiled.encode_file_descriptor_set())?;
    let descriptors = compiled.file_descriptor_set();
    prost_build::Config::new()
        .bytes([
            ".flotilla.v1.Event.properties_json",
            ".flotilla.v1.ExecOutput.data",
            ".flotilla.v1.TerminalOutput.data",
        ])
        // These have the value of a secret, so `secret_value` prints them.
        .skip_debug([".flotilla.v1.SetSecretRequest", ".flotilla.v1.PutSecretRequest"])
        .compile_fds(descriptors)?;
    println!("cargo::metadata=descriptors={}", path.display());
    println!("cargo::rerun-if-changed={}", package.display());
    Ok(())
}
