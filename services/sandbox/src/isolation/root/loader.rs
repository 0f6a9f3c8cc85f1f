//! The dynamic loader and the libraries of our init. An image has others, or none, so the sandbox shows those of the machine to the init.

use anyhow::{Context as _, ensure};
use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
};

/// Where the sandbox sees them.
pub(in crate::isolation) const INSIDE: &str = "/opt/flotilla/lib";
/// Bytes of an ELF file that hold its header and its program headers; an init without an interpreter there counts as static.
const HEAD_BYTES: usize = 4096;
/// The kind of the program header that names the interpreter.
const PT_INTERP: u32 = 3;

/// The copies of the loader and the libraries that the init needs.
#[derive(Debug, Clone)]
pub(in crate::isolation) struct Loader {
    /// The directory of the copies.
    pub(in crate::isolation) directory: PathBuf,
    /// The path of the loader inside.
    pub(in crate::isolation) program: PathBuf,
}

impl Loader {
    /// Copies what `init` needs into `directory`, which is replaced. `None`: it is linked statically and needs nothing.
    pub(in crate::isolation) fn copy(init: &Path, directory: &Path) -> anyhow::Result<Option<Self>> {
        let Some(loader) = interpreter(init).context("read the init")? else { return Ok(None) };
        let name = loader.file_name().context("find the name of the loader")?;
        let libraries = list(&loader, init)?;
        drop(fs::remove_dir_all(directory));
        crate::layout::make_passage(directory).context("make the directory of the libraries")?;
        for file in libraries.iter().chain([&loader]) {
            let copy = directory.join(file.file_name().context("find the name of a library")?);
            fs::copy(file, &copy).with_context(|| format!("copy {}", file.display()))?;
            fs::set_permissions(&copy, Permissions::from_mode(0o755)).context("show the libraries")?;
        }
        Ok(Some(Self { directory: directory.to_owned(), program: Path::new(INSIDE).join(name) }))
    }
}

/// The loader and the libraries of a program; none, if it is linked statically or no ELF program of this kind.
pub(super) fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let Some(loader) = interpreter(program).context("read the program")? else { return Ok(Vec::new()) };
    let mut libraries = list(&loader, program)?;
    libraries.push(loader);
    Ok(libraries)
}

/// The libraries of a program, as its loader finds them.
fn list(loader: &Path, program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new(loader).arg("--list").arg(program).env_clear().output();
    let listed = listed.with_context(|| format!("run {}", loader.display()))?;
    ensure!(
        listed.status.success(),
        "{} cannot list the libraries of {}",
        loader.display(),
        program.display()
    );
    let lines = String::from_utf8_lossy(&listed.stdout);
    Ok(lines.lines().filter_map(library).map(Path::to_owned).collect())
}

/// The file in a line such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`.
fn library(line: &str) -> Option<&Path> {
    let (_, rest) = line.split_once(" => ")?;
    let (path, _) = rest.rsplit_once(" (")?;
    path.starts_with('/').then(|| Path::new(path))
}

/// The loader that a 64-bit ELF program names.
fn interpreter(program: &Path) -> std::io::Result<Option<PathBuf>> {
    use std::io::Read as _;
    let mut head = Vec::new();
    fs::File::open(program)?.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(find_interpreter(&head).map(|path| PathBuf::from(OsStr::from_bytes(path))))
}

fn find_interpreter(head: &[u8]) -> Option<&[u8]> {
    let number = |at: usize, size: usize| {
        let bytes = head.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    if !head.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let (offset, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let headers = (0..count).filter_map(|index| usize::try_from(offset + index * size).ok());
    let interpreter = headers.into_iter().find(|at| number(*at, 4) == Some(u64::from(PT_INTERP)))?;
    let (start, length) = (number(interpreter + 8, 8)?, number(interpreter + 32, 8)?);
    let start = usize::try_from(start).ok()?;
    head.get(start..start + usize::try_from(length).ok()?)?.strip_suffix(b"\0")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn libraries_are_read_from_the_list_of_the_loader() {
        let line = "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000000000)";
        assert_eq!(library(line), Some(Path::new("/lib/x86_64-linux-gnu/libc.so.6")));
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007ffc00000000)"), None);
        assert_eq!(library("\tlibx.so => not found"), None);
    }

    #[test]
    fn a_dynamic_program_names_its_loader() {
        let shell = interpreter(Path::new("/bin/sh")).unwrap().unwrap();
        assert!(shell.is_absolute() && shell.exists(), "{}", shell.display());
        assert_eq!(find_interpreter(b"#!/bin/sh"), None);
    }
}
