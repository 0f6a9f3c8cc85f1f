//! A new generation while the service writes it, in a directory of its own. The service links the packs and the objects of Git LFS that the earlier generation
//! has too, and copies the others from the files of a session.

use super::{
    content::{MirrorContent, PackFile},
    file::SessionFile,
    generation::{Generation, OBJECTS, PACKS},
    key::MirrorKey,
    objects::{MirrorObjects, SessionObjects},
};
use crate::layout::remove_directory;
use domain::egress::lfs::pointer::LfsPointer;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A generation that is not in its place yet. Dropping it removes it, unless it was moved there.
#[derive(Debug)]
pub(super) struct NextGeneration {
    pub(super) directory: PathBuf,
}

/// What a generation is made of.
#[derive(Debug)]
pub(super) struct GenerationParts<'a> {
    pub(super) key: &'a MirrorKey,
    /// Its packs, and what its references name.
    pub(super) content: &'a MirrorContent,
    /// The files of the clone that has reported the packs. No process has them open. `None`: the earlier generation has all packs.
    pub(super) clone: Option<&'a Path>,
    /// Its objects of Git LFS.
    pub(super) objects: &'a MirrorObjects,
    /// The session that has got some of these objects. `None`: the earlier generation has all of them.
    pub(super) session: Option<&'a SessionObjects>,
    /// The earlier generation, which this one replaces.
    pub(super) base: Option<&'a Arc<Generation>>,
}

impl GenerationParts<'_> {
    /// What the files take that the earlier generation does not have; bytes.
    pub(super) fn new_bytes(&self) -> u64 {
        let files = self.content.files.iter().filter(|file| self.earlier(file).is_none());
        let objects = self.objects.pointers().iter().filter(|pointer| self.earlier_object(pointer).is_none());
        let sizes = files.map(|file| file.bytes).chain(objects.map(LfsPointer::size));
        sizes.fold(0, u64::saturating_add)
    }

    /// The file of the earlier generation. A pack has the checksum of its content for its name.
    fn earlier(&self, file: &PackFile) -> Option<PathBuf> {
        let path = self.base?.directory.join(PACKS).join(&file.name);
        fs::symlink_metadata(&path).is_ok_and(|known| known.len() == file.bytes).then_some(path)
    }

    /// The object of the earlier generation, unless its file is damaged.
    fn earlier_object(&self, pointer: &LfsPointer) -> Option<PathBuf> {
        let is_damaged = self.session.is_some_and(|session| session.damaged.contains(pointer));
        self.base?.find_object(pointer).filter(|_| !is_damaged)
    }

    /// Copies a file of a pack out of the clone.
    fn copy_pack(&self, file: &PackFile, place: &Path) -> io::Result<()> {
        let name = format!(".git/{PACKS}/{}", file.name);
        SessionFile { tree: self.clone.ok_or_else(vanished)?, name: &name, bytes: file.bytes }
            .copy(place, None)
    }

    /// Copies an object out of the files of the session.
    fn copy_object(&self, pointer: &LfsPointer, place: &Path) -> io::Result<()> {
        self.session.ok_or_else(vanished)?.copy(pointer, place)
    }
}

impl NextGeneration {
    /// Writes a generation to `directory`, which does not exist. Blocks.
    pub(super) fn write(directory: PathBuf, parts: &GenerationParts<'_>) -> io::Result<Self> {
        let next = Self { directory };
        Generation::write_frame(&next.directory, parts.key, parts.content, parts.objects)?;
        for file in &parts.content.files {
            let place = next.directory.join(PACKS).join(&file.name);
            match parts.earlier(file) {
                // Both belong to the service, and no other user can write them.
                Some(earlier) => fs::hard_link(earlier, place)?,
                None => parts.copy_pack(file, &place)?,
            }
        }
        for pointer in parts.objects.pointers() {
            let place = next.directory.join(OBJECTS).join(pointer.oid());
            match parts.earlier_object(pointer) {
                Some(earlier) => fs::hard_link(earlier, place)?,
                None => parts.copy_object(pointer, &place)?,
            }
        }
        Ok(next)
    }
}

impl Drop for NextGeneration {
    fn drop(&mut self) {
        if let Err(error) = remove_directory(&self.directory) {
            tracing::warn!(%error, "a mirror that was not kept takes space until the next start");
        }
    }
}

/// The error of a file that the earlier generation no longer has.
fn vanished() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "a file of the earlier mirror is gone")
}
