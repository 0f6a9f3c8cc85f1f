//! Writes whole files: to a new file next to the old one, which is then renamed, so that no reader sees half of it.

use super::read;
use crate::{
    paths::{Access, Kind, PathHandle, Root, Roots},
    service::Failure,
};
use domain::limits;
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};
use sandbox_wire::v1::FailureCode;
use std::{
    ffi::OsString,
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};
use wire::v1;

const MODE_NEW: Mode = Mode::from_raw_mode(0o666);
const MODE_DIRECTORY: Mode = Mode::from_raw_mode(0o777);
/// `expected_sha256` of a file that must not exist.
const ABSENT: &str = "absent";

/// Writes a whole file, making its directories.
pub(super) fn file(roots: &Roots, request: &v1::WriteFileRequest) -> Result<v1::WriteFileResponse, Failure> {
    let path = request.path.as_str();
    if request.data.len() > limits::FILE_BYTES_MAX {
        let text = format!("the file is too large; the limit is {} bytes", limits::FILE_BYTES_MAX);
        return Err(Failure::new(FailureCode::FileTooLarge, text));
    }
    let (root, rest) = roots.split(path, Access::Write)?;
    if rest.file_name().is_none() {
        return Err(Failure::new(FailureCode::FileIsDirectory, format!("{path} is a directory")));
    }
    let sha256 = read::hex_digest(&request.data);
    let failed = |errno| roots.failure(errno, path);
    let (target, mode) = match roots.find(path, Access::Write) {
        Ok(found) => {
            if found.kind() != Kind::File {
                // This call returns the error.
                found.open_file(path)?;
            }
            unchanged(&found, path, &request.expected_sha256)?;
            // A link stays; the file that it points to is replaced.
            let real = found
                .path()
                .ok()
                .and_then(|real| Some(real.strip_prefix(crate::paths::WORKSPACE).ok()?.to_owned()));
            (real.ok_or_else(|| failed(Errno::XDEV))?, Some(Mode::from_raw_mode(found.stat.st_mode & 0o7777)))
        }
        Err(failure) if failure.code == FailureCode::FileNotFound => {
            if !request.expected_sha256.is_empty() && request.expected_sha256 != ABSENT {
                return Err(changed(path));
            }
            make_parents(root, rest).map_err(failed)?;
            (rest.to_owned(), None)
        }
        Err(failure) => return Err(failure),
    };
    replace(root, &target, &request.data, mode).map_err(failed)?;
    Ok(v1::WriteFileResponse { created: mode.is_none(), sha256 })
}

/// Removes a file, or a link.
pub(super) fn remove(
    roots: &Roots,
    request: &v1::RemoveFileRequest,
) -> Result<v1::RemoveFileResponse, Failure> {
    let path = request.path.as_str();
    let (root, rest) = roots.split(path, Access::Write)?;
    let failed = |errno| roots.failure(errno, path);
    let found = roots.find(path, Access::Write)?;
    let is_directory = || Failure::new(FailureCode::FileIsDirectory, format!("{path} is a directory"));
    let name = rest.file_name().filter(|_| found.kind() != Kind::Directory).ok_or_else(is_directory)?;
    unchanged(&found, path, &request.expected_sha256)?;
    let parent = root.resolve(rest.parent().unwrap_or(Path::new(""))).map_err(failed)?;
    rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(failed)?;
    Ok(v1::RemoveFileResponse {})
}

/// Refuses a file whose content is not the expected one. An empty hash expects nothing.
fn unchanged(found: &PathHandle, path: &str, expected_sha256: &str) -> Result<(), Failure> {
    if expected_sha256.is_empty() {
        return Ok(());
    }
    let mut old = Vec::new();
    let limit = limits::FILE_BYTES_MAX as u64 + 1;
    let read = found.open_file(path)?.take(limit).read_to_end(&mut old);
    if read.is_err() || read::hex_digest(&old) != expected_sha256 { Err(changed(path)) } else { Ok(()) }
}

fn changed(path: &str) -> Failure {
    Failure::new(FailureCode::FileChanged, format!("{path} has changed since you read it; read it again"))
}

fn make_parents(root: &Root, rest: &Path) -> Result<(), Errno> {
    let mut prefix = PathBuf::new();
    for part in rest.parent().into_iter().flat_map(Path::components) {
        let above = prefix.clone();
        prefix.push(part);
        match root.open_beneath(&prefix, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC) {
            Err(Errno::NOENT) => {
                let above = root.open_beneath(&above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
                match rustix::fs::mkdirat(&above, part.as_os_str(), MODE_DIRECTORY) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
            }
            // An absolute link that leads back inside.
            Err(Errno::XDEV) => drop(root.resolve(&prefix)?),
            other => drop(other?),
        }
    }
    Ok(())
}

fn replace(root: &Root, target: &Path, data: &[u8], mode: Option<Mode>) -> Result<(), Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = target.file_name().ok_or(Errno::INVAL)?;
    let parent = root.resolve(target.parent().unwrap_or(Path::new("")))?;
    let temporary = OsString::from(format!(".flotilla-{}.new", NEXT.fetch_add(1, Ordering::Relaxed)));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A killed init may have left this file.
    rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty()).ok();
    let file = rustix::fs::openat(&parent, &temporary, flags, MODE_NEW)?;
    let written =
        fill(file, data, mode).and_then(|()| rustix::fs::renameat(&parent, &temporary, &parent, name));
    if written.is_err() {
        rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty()).ok();
    }
    written
}

fn fill(file: OwnedFd, data: &[u8], mode: Option<Mode>) -> Result<(), Errno> {
    let mut file = File::from(file);
    file.write_all(data).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    mode.map_or(Ok(()), |mode| rustix::fs::fchmod(&file, mode))
}
