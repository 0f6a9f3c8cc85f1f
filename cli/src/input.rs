//! Files that a person names on the command line: only regular ones, and not more of them than a bound. A device can give bytes for ever, and a pipe
//! can keep a command waiting for the first.

use crate::exit::coded;
use anyhow::{Context as _, Result};
use rpc::v1::ErrorCode;
use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::FileTypeExt as _,
    path::Path,
};

/// Opens a regular file.
///
/// # Errors
/// `file_not_regular`; why it cannot be opened.
pub(crate) fn open(path: &Path) -> Result<File> {
    let kind = fs::metadata(path).context("find the file")?.file_type();
    if kind.is_file() {
        return File::open(path).context("open the file");
    }
    let what = match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(coded(ErrorCode::FileNotRegular, format!("it is {what}; name a regular file")))
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// Those of [`open`] and [`read_from`].
pub(crate) fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>> {
    read_from(open(path)?, bytes_max)
}

/// Like [`read`], for a text.
///
/// # Errors
/// Those of [`read`]; `file_not_text`.
pub(crate) fn read_text(path: &Path, bytes_max: usize) -> Result<String> {
    to_text(read(path, bytes_max)?)
}

/// Reads to the end, or to one byte beyond `bytes_max`.
///
/// # Errors
/// `file_too_large`; why it cannot be read.
pub(crate) fn read_from(reader: impl Read, bytes_max: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    // One byte more tells a file at the limit from a larger one.
    reader.take(bytes_max as u64 + 1).read_to_end(&mut bytes).context("read the file")?;
    if bytes.len() > bytes_max {
        return Err(coded(
            ErrorCode::FileTooLarge,
            format!("it is larger than the limit of {bytes_max} bytes"),
        ));
    }
    Ok(bytes)
}

/// Returns the bytes as a text.
///
/// # Errors
/// `file_not_text`.
pub(crate) fn to_text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| coded("file_not_text", "it is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::exit;

    #[test]
    fn only_regular_files_within_the_bound_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let (file, pipe) = (directory.path().join("file"), directory.path().join("pipe"));
        fs::write(&file, "abc").unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert_eq!(read_text(&file, 3).unwrap(), "abc");
        let code = |path: &Path, bytes_max: usize| exit::code(&read_text(path, bytes_max).unwrap_err());
        assert_eq!(code(&file, 2), "file_too_large");
        for path in [directory.path(), &pipe, Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert_eq!(code(path, 3), "file_not_regular", "{}", path.display());
        }
        fs::write(&file, b"\xff").unwrap();
        assert_eq!(code(&file, 2), "file_not_text");
        // A file of the kernel has no length, and may have no end.
        assert_eq!(code(Path::new("/proc/self/status"), 8), "file_too_large");
    }
}
