//! Compiles the services of proto/flotilla/v1 without a system protoc. Their messages are those of the crate `wire`.

use prost::Message as _;
use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let package = root.join("flotilla/v1");
    let entries: Result<Vec<_>, _> = fs::read_dir(&package)?.collect();
    let mut files: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    let descriptors = protox::compile(&files, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptor.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .extern_path(".flotilla.v1", "::wire::v1")
        .codec_path("crate::codec::Codec")
        .compile_fds(descriptors)?;
    println!("cargo:rerun-if-changed={}", package.display());
    Ok(())
}
