//! Compiles proto/flotilla/sandbox_init/v1 without a system protoc. The public messages in it are those of the crate `wire`.

use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let file = root.join("flotilla/sandbox_init/v1/init.proto");
    prost_build::Config::new()
        .extern_path(".flotilla.v1", "::wire::v1")
        .bytes([".flotilla.sandbox_init.v1.Reply.output"])
        .compile_fds(protox::compile([file], [&root])?)?;
    println!("cargo:rerun-if-changed={}", root.display());
    Ok(())
}
