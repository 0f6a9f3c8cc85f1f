//! Files that contain secrets.

use anyhow::{Context as _, Result};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Replaces `file` by one that only its owner can read.
pub(crate) fn write(file: &Path, content: &str) -> Result<()> {
    let temporary = file.with_extension("tmp");
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut writer = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        writer.write_all(content.as_bytes())?;
        fs::rename(&temporary, file)
    };
    write().with_context(|| format!("write {}", file.display()))
}

/// Makes a directory, and those above it, for its owner alone. One that exists stays as it is.
pub(crate) fn make_directory(directory: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("make {}", directory.display()))
}
