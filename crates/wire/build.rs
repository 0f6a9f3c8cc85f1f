//! Compiles the messages of proto/flotilla/v1 without a system protoc, and hands their descriptors to dependent crates.

use protox::prost_reflect::DescriptorPool;
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
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("codes.rs"), codes(&compiler.descriptor_pool())?)?;
    prost_build::Config::new()
        .bytes([
            ".flotilla.v1.Event.properties_json",
            ".flotilla.v1.ExecOutput.data",
            ".flotilla.v1.TerminalOutput.data",
        ])
        // These have the value of a secret, so `secret_value` prints them.
        .skip_debug([
            ".flotilla.v1.SetSecretRequest",
            ".flotilla.v1.PutSecretRequest",
            ".flotilla.v1.SetupGithubRequest",
            ".flotilla.v1.PutForgeAppRequest",
        ])
        .compile_fds(descriptors)?;
    println!("cargo::metadata=descriptors={}", path.display());
    println!("cargo::rerun-if-changed={}", package.display());
    Ok(())
}

/// The table of the error codes for `code.rs`: spelling and kind of each, by number.
///
/// # Errors
/// If a code has no kind, or the numbers have gaps.
fn codes(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let codes = pool.get_enum_by_name("flotilla.v1.ErrorCode").ok_or("no ErrorCode")?;
    let option = pool.get_extension_by_name("flotilla.v1.error_kind").ok_or("no error_kind")?;
    let kinds = pool.get_enum_by_name("flotilla.v1.ErrorKind").ok_or("no ErrorKind")?;
    let mut values: Vec<_> = codes.values().collect();
    values.sort_by_key(|code| code.number());
    let mut rows = String::new();
    for (at, code) in values.iter().enumerate() {
        let kind = code.options().get_extension(&option).as_enum_number().unwrap_or_default();
        let kind = kinds.get_value(kind).filter(|kind| kind.number() != 0);
        let kind = kind.ok_or_else(|| format!("{} has no kind", code.name()))?;
        if usize::try_from(code.number()) != Ok(at) {
            return Err(format!("{} is {}, and no code is {at}", code.name(), code.number()).into());
        }
        let name = code.name().trim_start_matches("ERROR_CODE_").to_lowercase();
        let kind = kind.name().trim_start_matches("ERROR_KIND_");
        let words = kind.split('_').map(|word| word[..1].to_owned() + &word[1..].to_lowercase());
        rows.push_str(&format!("    (\"{name}\", ErrorKind::{}),\n", words.collect::<String>()));
    }
    Ok(format!("const CODES: [(&str, ErrorKind); {}] = [\n{rows}];\n", values.len()))
}
