//! A new generation while the service writes it, in a directory of its own. The service links the packs that the earlier generation has too, and copies
//! the others from a clone.

use super::{
    content::{MirrorContent, PackFile},
    generation::{Generation, PACKS},
    key::MirrorKey,
};
use crate::layout::{open_plain_file, remove_directory};
use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// A draft. Dropping it removes it, unless it was moved into its place.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) directory: PathBuf,
}

/// What a draft is made of.
#[derive(Debug)]
pub(super) struct DraftParts<'a> {
    pub(super) key: &'a MirrorKey,
    /// What the clone reported.
    pub(super) content: &'a MirrorContent,
    /// The files of the clone. No process has them open.
    pub(super) clone: &'a Path,
    /// The earlier generation, which the clone has read.
    pub(super) base: Option<&'a Generation>,
}

impl DraftParts<'_> {
    /// What the files take that the earlier generation does not have; bytes.
    pub(super) fn new_bytes(&self) -> u64 {
        let files = self.content.files.iter().filter(|file| self.earlier(file).is_none());
        files.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// The file of the earlier generation. A pack has the checksum of its content for its name.
    fn earlier(&self, file: &PackFile) -> Option<PathBuf> {
        let path = self.base?.directory.join(PACKS).join(&file.name);
        fs::symlink_metadata(&path).is_ok_and(|known| known.len() == file.bytes).then_some(path)
    }
}

impl Draft {
    /// Writes a draft to `directory`, which does not exist. Blocks.
    pub(super) fn write(directory: PathBuf, parts: &DraftParts<'_>) -> io::Result<Self> {
        let draft = Self { directory };
        Generation::write_frame(&draft.directory, parts.key, parts.content)?;
        for file in &parts.content.files {
            let place = draft.directory.join(PACKS).join(&file.name);
            match parts.earlier(file) {
                // Both belong to the service, and no other user can write them.
                Some(earlier) => fs::hard_link(earlier, place)?,
                None => copy(parts.clone, file, &place)?,
            }
        }
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Err(error) = remove_directory(&self.directory) {
            tracing::warn!(%error, "a mirror that was not kept takes space until the next start");
        }
    }
}

/// Copies a file out of the clone. A session must not share a file with the mirror: it could write it.
fn copy(clone: &Path, file: &PackFile, place: &Path) -> io::Result<()> {
    let from = open_plain_file(clone, &format!(".git/{PACKS}/{}", file.name))?;
    let mut to = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(place)?;
    let copied = io::copy(&mut io::Read::take(from, file.bytes.saturating_add(1)), &mut to)?;
    if copied != file.bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a pack has another size than reported"));
    }
    fs::set_permissions(place, std::os::unix::fs::PermissionsExt::from_mode(0o444))
}
