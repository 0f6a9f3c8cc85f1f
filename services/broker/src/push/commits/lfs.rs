//! The files of Git LFS among the changes of commits. A file that has its content is to become a pointer, and the content an object that the push sends. A
//! file that is a pointer needs an object that the server has.

use super::{
    blobs::{Blob, Blobs},
    change::{Change, Kind},
};
use crate::push::{
    error::PushError,
    git::Input,
    objects::{missing, parse_batch},
    repository::Repository,
    request::ObjectId,
};
use domain::egress::lfs::pointer::{LFS_POINTER_BYTES_MAX, LfsPointer};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Bytes of the attributes. With longer ones, no file counts as one of Git LFS.
const ATTRIBUTES_BYTES_MAX: u64 = 256 * 1024;
/// The text in them without which there are no files of Git LFS.
const FILTER: &[u8] = b"filter=lfs";
/// The value of the attribute.
const LFS: &[u8] = b"lfs";
/// Where git finds attributes that no commit has.
const INFO: &str = "repository/info/attributes";

/// A pointer that a commit adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::push) struct LfsFile {
    pub(in crate::push) commit: String,
    pub(in crate::push) path: String,
    pub(in crate::push) pointer: LfsPointer,
}

/// A content that a commit adds, where the server wants a pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::push) struct LfsContent {
    pub(in crate::push) change: Change,
    pub(in crate::push) bytes: u64,
}

/// The files of Git LFS among changes.
#[derive(Debug, Default)]
pub(in crate::push) struct LfsChanges {
    pub(in crate::push) pointers: Vec<LfsFile>,
    pub(in crate::push) contents: Vec<LfsContent>,
}

/// A look for files of Git LFS.
#[derive(Debug, Clone, Copy)]
pub(super) struct LfsSearch<'a> {
    pub(super) repository: Repository<'a>,
    pub(super) blobs: &'a Blobs,
}

impl LfsFile {
    pub(super) fn new(change: &Change, pointer: LfsPointer) -> Self {
        Self { commit: change.commit.short(), path: change.shown_path(), pointer }
    }
}

impl LfsSearch<'_> {
    /// Finds the files of Git LFS among these changes.
    ///
    /// # Errors
    /// `ContentInvalid`, `Failed`.
    pub(super) async fn run(&self, changes: &[Change]) -> Result<LfsChanges, PushError> {
        let is_file = |change: &&Change| matches!(change.kind, Kind::File | Kind::Program);
        let files: Vec<&Change> = changes.iter().filter(is_file).collect();
        if files.is_empty() {
            return Ok(LfsChanges::default());
        }
        let Some(attributes) = self.attributes().await? else { return Ok(LfsChanges::default()) };
        let paths: BTreeSet<&[u8]> = files.iter().map(|change| change.path.as_slice()).collect();
        let paths = self.paths(&attributes, &paths).await?;
        let files: Vec<&Change> = files.into_iter().filter(|change| paths.contains(&change.path)).collect();
        let size = |change: &Change| self.blobs.sizes.get(&change.object).copied().unwrap_or(u64::MAX);
        let is_short = |change: &&&Change| size(change) <= LFS_POINTER_BYTES_MAX as u64;
        let objects: BTreeSet<&ObjectId> =
            files.iter().filter(is_short).map(|change| &change.object).collect();
        let output = self.repository.read(&Vec::from_iter(objects)).await?;
        let pointers: HashMap<ObjectId, LfsPointer> = parse_batch(&output)?
            .into_iter()
            .filter_map(|object| Some((object.id, LfsPointer::parse(object.content)?)))
            .collect();
        let mut found = LfsChanges::default();
        // An empty file has no pointer.
        for change in files.into_iter().filter(|change| size(change) > 0) {
            match pointers.get(&change.object) {
                Some(pointer) => found.pointers.push(LfsFile::new(change, pointer.clone())),
                None => found.contents.push(LfsContent { change: change.clone(), bytes: size(change) }),
            }
        }
        Ok(found)
    }

    /// The attributes of the newest commit. `None`: it has no files of Git LFS.
    async fn attributes(&self) -> Result<Option<Vec<u8>>, PushError> {
        let Some(Blob { id, bytes }) = &self.blobs.attributes else { return Ok(None) };
        if *bytes > ATTRIBUTES_BYTES_MAX {
            return Ok(None);
        }
        let output = self.repository.read(&[id]).await?;
        let objects = parse_batch(&output)?;
        let [object] = &objects[..] else { return Err(missing()) };
        let has_filter = object.content.windows(FILTER.len()).any(|window| window == FILTER);
        Ok(has_filter.then(|| object.content.to_vec()))
    }

    /// The paths that the attributes give to Git LFS.
    async fn paths(
        &self,
        attributes: &[u8],
        paths: &BTreeSet<&[u8]>,
    ) -> Result<BTreeSet<Vec<u8>>, PushError> {
        let failed = |error: std::io::Error| PushError::failed("write attributes", &error);
        self.repository.directory.write(INFO, attributes).await.map_err(failed)?;
        let list: Vec<u8> = paths.iter().flat_map(|path| [*path, &b"\0"[..]].concat()).collect();
        let arguments = ["check-attr", "-z", "--stdin", "filter"];
        let output = self.repository.check(&arguments, Input::Bytes(&list)).await?;
        let values = parse_attributes(&output).ok_or_else(missing)?;
        Ok(values.into_iter().filter(|(_, value)| *value == LFS).map(|(path, _)| path.to_vec()).collect())
    }
}

/// Reads `path NUL filter NUL value NUL` for each path.
fn parse_attributes(output: &[u8]) -> Option<BTreeMap<&[u8], &[u8]>> {
    let mut fields = output.strip_suffix(b"\0").unwrap_or(output).split(|byte| *byte == 0);
    let mut values = BTreeMap::new();
    while let Some(path) = fields.next().filter(|path| !path.is_empty()) {
        let (_, value) = (fields.next()?, fields.next()?);
        values.insert(path, value);
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_attribute_of_each_path_is_read() {
        let read = parse_attributes(b"a b\0filter\0lfs\0c\0filter\0unspecified\0").unwrap();
        assert_eq!(read, BTreeMap::from([(&b"a b"[..], &b"lfs"[..]), (&b"c"[..], &b"unspecified"[..])]));
        assert_eq!(parse_attributes(b""), Some(BTreeMap::new()));
        assert_eq!(parse_attributes(b"a\0filter"), None);
    }
}
