//! The lock of a directory that only one broker at a time may use.

use chassis::shutdown::predecessor;
use std::{fs::File, io, path::Path};

/// Locks a directory that exists, until the returned file is dropped. Waits for a broker that ends.
///
/// # Errors
/// Another broker uses it; it cannot be opened.
pub(crate) async fn lock(directory: &Path) -> io::Result<File> {
    predecessor::lock(directory).await?.ok_or_else(|| {
        let text = format!("another broker uses {}: stop it, or name another directory", directory.display());
        io::Error::new(io::ErrorKind::ResourceBusy, text)
    })
}
