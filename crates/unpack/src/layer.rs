//! Unpacks one layer of an image into a directory that overlayfs takes as it is.
//!
//! What a layer may not bring is left out: owners, set-user-id bits, devices, pipes and extended attributes. Files and directories are
//! readable by every user, because sessions run as many users.

use crate::{
    blob::{Blob, Compression},
    bounds::{Bounds, PATH_BYTES_MAX},
    refusal::Refusal,
    tree::{Content, Tree, shown},
};
use serde::Serialize;
use std::{
    io::{self, Read},
    path::Path,
};
use tar::{Archive, Entry, EntryType};

/// A name that hides the rest of the name in lower layers.
const WHITEOUT: &[u8] = b".wh.";
/// A name that hides everything of its directory in lower layers.
const OPAQUE_WHITEOUT: &[u8] = b".wh..wh..opq";
/// How the names of the records of a sparse file begin.
const PAX_SPARSE: &[u8] = b"GNU.sparse.";

/// The identity and form of a layer.
#[derive(Debug, Clone)]
pub struct Layer {
    /// SHA-256 of the blob as the registry sends it; hexadecimal.
    pub digest: String,
    /// SHA-256 of the archive in it; hexadecimal.
    pub diff_id: String,
    /// How the archive is compressed.
    pub compression: Compression,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Devices, pipes and sockets that were left out.
    pub left_out: u64,
}

/// Unpacks the archive of `blob` into `directory`, which exists and is empty. After an error the directory holds a part of the layer: the caller
/// removes it.
///
/// # Errors
/// Why the layer is refused.
pub fn unpack(blob: impl Read, layer: &Layer, directory: &Path, bounds: Bounds) -> Result<Summary, Refusal> {
    let tree = Tree::open(directory)
        .map_err(|error| Refusal::Write { path: directory.display().to_string(), source: error })?;
    let mut unpacker = Unpacker { tree, bounds, summary: Summary::default() };
    let mut archive = Archive::new(Blob::open(blob, layer.compression, &bounds)?);
    let unreadable = |error: io::Error| {
        if error.kind() == io::ErrorKind::FileTooLarge {
            Refusal::Bomb(bounds.ratio)
        } else {
            Refusal::Unreadable(error)
        }
    };
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        unpacker.add(&mut entry).map_err(|refusal| match refusal {
            Refusal::Unreadable(error) => unreadable(error),
            refusal => refusal,
        })?;
    }
    archive.into_inner().finish(&layer.digest, &layer.diff_id)?;
    Ok(unpacker.summary)
}

struct Unpacker {
    tree: Tree,
    bounds: Bounds,
    summary: Summary,
}

impl Unpacker {
    fn add<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<(), Refusal> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        self.summary.entries += 1;
        if self.summary.entries > self.bounds.entries {
            return Err(Refusal::TooManyEntries(self.bounds.entries));
        }
        let path = self.path(&entry.path_bytes())?;
        let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], &path[..]),
        };
        if name == OPAQUE_WHITEOUT {
            return self.tree.make_opaque(directory);
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            let invalid = |reason| Refusal::Path { path: shown(&path), reason };
            if hidden.is_empty() || hidden == b"." || hidden == b".." {
                return Err(invalid("a whiteout names nothing"));
            }
            // Names that layers reserve for whiteouts of other kinds.
            if hidden.starts_with(WHITEOUT) {
                return Err(invalid("no whiteout of this kind is known"));
            }
            let hidden = [directory, if directory.is_empty() { b"" } else { b"/" }, hidden].concat();
            return self.tree.white_out(&hidden);
        }
        if path.is_empty() && kind != EntryType::Directory {
            return Err(Refusal::Path { path: String::new(), reason: "only a directory may be the root" });
        }
        self.write(kind, &path, entry)
    }

    fn write<R: Read>(
        &mut self,
        kind: EntryType,
        path: &[u8],
        entry: &mut Entry<'_, R>,
    ) -> Result<(), Refusal> {
        let mode = entry.header().mode().map_err(Refusal::Unreadable)?;
        match kind {
            EntryType::Directory => self.tree.make_directory(path, mode),
            // Holes take no bytes of the archive, and all of the disk. So the bound of the ratio counts what is written.
            EntryType::GNUSparse => Err(Refusal::Sparse { path: shown(path) }),
            EntryType::Regular | EntryType::Continuous if is_sparse(entry)? => {
                Err(Refusal::Sparse { path: shown(path) })
            }
            EntryType::Regular | EntryType::Continuous => {
                let modified = entry.header().mtime().map_err(Refusal::Unreadable)?;
                let most_bytes = self.bounds.bytes - self.summary.bytes;
                let modified_s = i64::try_from(modified).unwrap_or(0);
                let content = Content { bytes: entry, mode, modified_s, most_bytes };
                let written = self.tree.write_file(path, content)?;
                if written > most_bytes {
                    return Err(Refusal::TooLarge(self.bounds.bytes));
                }
                self.summary.bytes += written;
                Ok(())
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                if target.is_empty() || target.len() >= PATH_BYTES_MAX || target.contains(&0) {
                    return Err(Refusal::Path { path: shown(path), reason: "its link names nothing" });
                }
                self.tree.link_to(path, &target)
            }
            EntryType::Link => {
                let target = self.path(&entry.link_name_bytes().unwrap_or_default())?;
                self.tree.link_again(path, &target)
            }
            // Devices and pipes, and what this version of the format does not know.
            _ => {
                self.summary.left_out += 1;
                Ok(())
            }
        }
    }

    /// A path of the archive without its root, `.` and doubled slashes.
    fn path(&self, raw: &[u8]) -> Result<Vec<u8>, Refusal> {
        let invalid = |reason| Refusal::Path { path: shown(raw), reason };
        if raw.len() >= PATH_BYTES_MAX {
            return Err(invalid("it is too long"));
        }
        if raw.contains(&0) {
            return Err(invalid("it contains a zero byte"));
        }
        let components: Vec<&[u8]> =
            raw.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        if components.contains(&&b".."[..]) {
            return Err(invalid("it goes up"));
        }
        if components.len() > self.bounds.depth {
            return Err(Refusal::TooDeep { path: shown(raw), limit: self.bounds.depth });
        }
        Ok(components.join(&b'/'))
    }
}

/// Whether an entry is sparse in the form of pax, whose content begins with the places of its parts.
fn is_sparse<R: Read>(entry: &mut Entry<'_, R>) -> Result<bool, Refusal> {
    let extensions = entry.pax_extensions().map_err(Refusal::Unreadable)?.into_iter().flatten();
    // Records with binary values, such as capabilities, cannot be read, and say nothing of holes.
    Ok(extensions.filter_map(Result::ok).any(|extension| extension.key_bytes().starts_with(PAX_SPARSE)))
}
