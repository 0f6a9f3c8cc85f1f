//! Generates the services of proto/flotilla/v1 from the descriptors that the crate `wire` compiled. Their messages are those
//! of `wire`.

use prost::Message as _;
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo sets this variable from the metadata of a dependency with a `links` key.
    let path = env::var("DEP_FLOTILLA_WIRE_DESCRIPTORS")?;
    let descriptors = prost_types::FileDescriptorSet::decode(&fs::read(&path)?[..])?;
    tonic_prost_build::configure()
        .extern_path(".flotilla.v1", "::wire::v1")
        .codec_path("crate::codec::Codec")
        .compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed={path}");
    Ok(())
}
