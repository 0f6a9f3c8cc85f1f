//! A file or directory of the machine that a sandbox sees.

use std::{io, path::PathBuf};

/// A file or directory of the machine that the sandbox sees.
#[derive(Debug, Clone)]
pub struct Mount {
    /// The path on this machine.
    pub source: PathBuf,
    /// The path inside. Never below another mount that the tenant writes.
    pub inside: PathBuf,
    /// How the sandbox sees it.
    pub access: MountAccess,
}

/// What a sandbox may do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountAccess {
    Read,
    /// Read it, with what the machine has mounted below it.
    ReadAll,
    /// Read it, unless it is removed before the sandbox starts. The sandbox then has no such path.
    ReadIfPresent,
    /// Read it and write to it.
    Write,
}

impl Mount {
    /// Shows `source` read-only.
    pub fn read(source: impl Into<PathBuf>, inside: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), inside: inside.into(), access: MountAccess::Read }
    }

    /// Shows `source` and what the machine has mounted below it read-only.
    pub(super) fn read_all(source: impl Into<PathBuf>, inside: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), inside: inside.into(), access: MountAccess::ReadAll }
    }

    /// Shows `source` read-only, unless another task removes it before the sandbox starts.
    pub fn read_if_present(source: impl Into<PathBuf>, inside: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), inside: inside.into(), access: MountAccess::ReadIfPresent }
    }

    /// Shows `source` to be written.
    pub fn write(source: impl Into<PathBuf>, inside: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), inside: inside.into(), access: MountAccess::Write }
    }

    /// Whether a sandbox can start without it when `error` has kept it from being opened.
    pub(in crate::isolation) fn may_lack(&self, error: &io::Error) -> bool {
        self.access == MountAccess::ReadIfPresent && error.kind() == io::ErrorKind::NotFound
    }
}
