//! Files of the stack that contain secrets.

use anyhow::{Context as _, Result};
use std::{fs, path::Path};

/// Replaces `file` by one that only its owner can read.
pub(super) fn write(file: &Path, content: &str) -> Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let beside = file.with_extension("tmp");
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut writer = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        writer.write_all(content.as_bytes())?;
        fs::rename(&beside, file)
    };
    write().with_context(|| format!("write {}", file.display()))
}
