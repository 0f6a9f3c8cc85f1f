//! Compiles proto/ without a system protoc.

use prost::Message as _;
use std::{env, error::Error, fs, path::PathBuf};

const FILES: [&str; 14] = [
    "admin",
    "common",
    "event",
    "message",
    "permission",
    "project",
    "prompt",
    "pty",
    "question",
    "sandbox",
    "session",
    "settings",
    "tenant",
    "terminal",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let files: Vec<_> = FILES.iter().map(|name| root.join(format!("flotilla/v1/{name}.proto"))).collect();
    let descriptors = protox::compile(&files, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptor.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".flotilla.v1.Event.properties_json")
        .bytes(".flotilla.v1.ExecOutput.data")
        .bytes(".flotilla.v1.TerminalOutput.data")
        .codec_path("crate::codec::Codec")
        .compile_fds(descriptors)?;
    println!("cargo:rerun-if-changed={}", root.display());
    Ok(())
}
