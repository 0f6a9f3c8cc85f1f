//! Puts pointers in place of the contents of Git LFS in the commit of a session. The sandbox has no credential and no git-lfs, so a session exports what it changed as
//! bytes. The new commit depends on nothing but the exported one, so the same push again makes the same commit.

use super::{
    change::{Change, Kind},
    lfs::{LfsContent, LfsFile},
};
use crate::push::{
    error::PushError,
    git::{GitEnd, Input, Output},
    objects::{Commit, missing},
    repository::Repository,
    request::ObjectId,
};
use aws_lc_rs::digest::{Context, SHA256};
use domain::{egress::lfs::pointer::LfsPointer, text};
use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
};
use tokio::{fs::File, io::AsyncReadExt as _};

/// Bytes of a content that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// An object that a push sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::push) struct LfsObject {
    /// The first file that needs it.
    pub(in crate::push) file: LfsFile,
    /// Its content, in the directory of the push.
    pub(in crate::push) content: PathBuf,
}

#[derive(Debug)]
pub(in crate::push) struct PointerCommit {
    pub(in crate::push) commit: ObjectId,
    pub(in crate::push) tree: ObjectId,
    /// The objects of its new pointers.
    pub(in crate::push) objects: Vec<LfsObject>,
}

/// The repository in which commits get pointers.
#[derive(Debug, Clone, Copy)]
pub(in crate::push) struct Pointers<'a> {
    pub(in crate::push) repository: Repository<'a>,
}

impl Pointers<'_> {
    /// Makes the commit on top of `base` that has pointers in place of these contents of `commit`.
    ///
    /// # Errors
    /// `Nothing`: the contents are those of pointers of the base commit; `ContentInvalid`, `Failed`.
    pub(in crate::push) async fn put(
        &self,
        commit: &ObjectId,
        base: &ObjectId,
        contents: &[LfsContent],
    ) -> Result<PointerCommit, PushError> {
        let (mut blobs, mut objects) = (HashMap::new(), vec![]);
        for change in distinct(contents) {
            let content = self.unpack(&change.object).await?;
            let pointer = read_pointer(&content).await;
            let pointer = pointer.map_err(|error| PushError::failed("read a content", &error))?;
            let text = pointer.to_string();
            let blob = self.repository.name(&["hash-object", "-w", "--stdin"], text.as_bytes()).await?;
            blobs.insert(&change.object, blob);
            objects.push(LfsObject { file: LfsFile::new(change, pointer), content });
        }
        let mut entries = vec![];
        for LfsContent { change, .. } in contents {
            let blob = blobs.get(&change.object).ok_or_else(missing)?;
            let mode = if change.kind == Kind::Program { "100755" } else { "100644" };
            entries.extend_from_slice(format!("{mode} {blob}\t").as_bytes());
            entries.extend_from_slice(&change.path);
            entries.push(0);
        }
        self.repository.check(&["read-tree", commit.as_str()], Input::Nothing).await?;
        let index = ["update-index", "-z", "--index-info"];
        self.repository.check(&index, Input::Bytes(&entries)).await?;
        let tree = self.repository.name(&["write-tree"], b"").await?;
        let base_tree =
            self.repository.name(&["rev-parse", "--verify", &format!("{base}^{{tree}}")], b"").await?;
        if tree == base_tree {
            return Err(PushError::Nothing);
        }
        let arguments = ["cat-file", "commit", commit.as_str()];
        let exported = self.repository.check(&arguments, Input::Nothing).await?;
        let exported = Commit::parse(&exported).ok_or_else(missing)?;
        let text = exported.with_tree(tree.as_str()).on_top_of(base);
        let commit = self.repository.add_commit(&text).await?;
        Ok(PointerCommit { commit, tree, objects })
    }

    /// Writes a content into a file of the directory.
    async fn unpack(&self, object: &ObjectId) -> Result<PathBuf, PushError> {
        let name = format!("lfs-{object}");
        let arguments = ["cat-file", "blob", object.as_str()];
        let Repository { git, directory } = self.repository;
        let ended = git.run(directory, &arguments, Input::Nothing, Output::File(&name)).await?;
        let GitEnd { is_success, errors, .. } = ended;
        if is_success {
            Ok(directory.path().join(name))
        } else {
            Err(PushError::ContentInvalid(format!("git cannot unpack a content of Git LFS: {errors}")))
        }
    }
}

/// The first change with each content.
fn distinct(contents: &[LfsContent]) -> Vec<&Change> {
    let mut seen = HashSet::new();
    contents.iter().map(|content| &content.change).filter(|change| seen.insert(&change.object)).collect()
}

/// The pointer that names the content of a file.
async fn read_pointer(content: &Path) -> io::Result<LfsPointer> {
    let mut file = File::open(content).await?;
    let (mut hash, mut size, mut piece) = (Context::new(&SHA256), 0, vec![0; PIECE_BYTES]);
    loop {
        let length = file.read(&mut piece).await?;
        if length == 0 {
            break;
        }
        hash.update(&piece[..length]);
        size += length as u64;
    }
    let oid = text::hex(hash.finish().as_ref());
    LfsPointer::new(&oid, size).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn the_pointer_of_a_file_names_all_of_its_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("content");
        let content = vec![b'x'; PIECE_BYTES + 1];
        for (content, oid) in [
            (&b"abc"[..], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned()),
            (&content[..], text::hex(aws_lc_rs::digest::digest(&SHA256, &content).as_ref())),
        ] {
            std::fs::write(&file, content).unwrap();
            let pointer = read_pointer(&file).await.unwrap();
            assert_eq!((pointer.oid(), pointer.size()), (oid.as_str(), content.len() as u64));
        }
    }
}
