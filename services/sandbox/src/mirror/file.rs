//! A file of a session that the mirror keeps. A session must not share a file with the mirror, because it could write it, so the mirror has a copy.

use crate::layout::open_plain_file;
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, File, Permissions},
    io::{self, Read as _, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

/// What may be done with a copy: every user may read it.
const READABLE: u32 = 0o444;

/// A file in the files of a session. No process has it open.
pub(super) struct SessionFile<'a> {
    pub(super) tree: &'a Path,
    /// Its path below the tree.
    pub(super) name: &'a str,
    /// Its length, as a helper has reported it.
    pub(super) bytes: u64,
}

/// A copy that is hashed while it is written.
struct HashedCopy<'a> {
    file: File,
    hash: &'a mut Sha256,
}

impl SessionFile<'_> {
    /// Copies it to `place`, and adds its bytes to `hash`. Without a hash, the kernel copies, and file systems that can share the blocks. Blocks.
    ///
    /// # Errors
    /// `InvalidData` if it has another length; those of the file system.
    pub(super) fn copy(&self, place: &Path, hash: Option<&mut Sha256>) -> io::Result<()> {
        let from = open_plain_file(self.tree, self.name)?;
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(READABLE).open(place)?;
        // One more byte shows that the file is too long.
        let mut from = from.take(self.bytes.saturating_add(1));
        let copied = match hash {
            Some(hash) => io::copy(&mut from, &mut HashedCopy { file, hash })?,
            None => io::copy(&mut from, &mut file)?,
        };
        if copied != self.bytes {
            let text = "a file of a session has another length than reported";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        fs::set_permissions(place, Permissions::from_mode(READABLE))
    }
}

impl Write for HashedCopy<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let count = self.file.write(piece)?;
        self.hash.update(&piece[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
