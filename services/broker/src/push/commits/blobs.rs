//! The new blobs of commits: how long each of them is, and which of them says what is of Git LFS.

use super::change::Change;
use crate::push::{
    error::PushError, git::Input, objects::missing, repository::Repository, request::ObjectId,
};
use std::collections::{BTreeSet, HashMap};

/// The file that says which files are of Git LFS. One in another directory does not count here.
const ATTRIBUTES: &str = ".gitattributes";

/// A blob and its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) id: ObjectId,
    pub(super) bytes: u64,
}

/// The blobs that an inspection needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::push) struct Blobs {
    /// The lengths of all new ones, and perhaps of others.
    pub(super) sizes: HashMap<ObjectId, u64>,
    /// The attributes in the newest commit; `None`: it has no such file, or the commits bring no blob.
    pub(super) attributes: Option<Blob>,
}

impl Blobs {
    /// Finds the blobs that `changes` bring, and the attributes of the commit `tip`. The `known` ones are of commits whose newest has the same files as `tip`. No
    /// git runs if they include all that `changes` bring.
    ///
    /// # Errors
    /// `ContentInvalid`: an object is missing or no blob; `Failed`.
    pub(super) async fn find(
        repository: Repository<'_>,
        tip: &ObjectId,
        changes: &[Change],
        known: Self,
    ) -> Result<Self, PushError> {
        let stored = changes.iter().filter(|change| change.is_stored());
        let new: BTreeSet<&ObjectId> = stored.map(|change| &change.object).collect();
        if new.iter().all(|object| known.sizes.contains_key(*object)) {
            return Ok(known);
        }
        let list: String = new.iter().map(|object| format!("{object}\n")).collect();
        let list = format!("{list}{tip}:{ATTRIBUTES}\n");
        let arguments = ["cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)"];
        let output = repository.check(&arguments, Input::Bytes(list.as_bytes())).await?;
        Self::parse(&String::from_utf8_lossy(&output), new.len()).ok_or_else(missing)
    }

    /// Reads a line for each of so many new blobs, and one for the attributes. `None`: an object is missing or no blob.
    fn parse(output: &str, count: usize) -> Option<Self> {
        let mut lines = output.lines();
        let new: Option<Vec<Blob>> = lines.by_ref().take(count).map(Blob::parse).collect();
        let sizes: HashMap<ObjectId, u64> = new?.into_iter().map(|blob| (blob.id, blob.bytes)).collect();
        // Git says in this line if there is no such file: `TIP:.gitattributes missing`.
        let attributes = Blob::parse(lines.next()?);
        (sizes.len() == count && lines.next().is_none()).then_some(Self { sizes, attributes })
    }
}

impl Blob {
    fn parse(line: &str) -> Option<Self> {
        let [id, "blob", bytes] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        Some(Self { id: ObjectId::parse(id)?, bytes: bytes.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_new_blob_must_be_there_and_the_attributes_need_not() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let id = |text: &str| ObjectId::parse(text).unwrap();
        let sizes = HashMap::from([(id(&one), 0), (id(&two), 7)]);
        let new = format!("{one} blob 0\n{two} blob 7\n");
        for (line, attributes) in [
            (format!("{one}:.gitattributes missing"), None),
            // A directory or a submodule of this name.
            (format!("{two} tree 33"), None),
            (format!("{two} submodule"), None),
            (format!("{two} blob 7"), Some(Blob { id: id(&two), bytes: 7 })),
        ] {
            let blobs = Blobs { sizes: sizes.clone(), attributes };
            assert_eq!(Blobs::parse(&format!("{new}{line}\n"), 2), Some(blobs), "{line}");
        }
        let attributes = format!("{one}:.gitattributes missing\n");
        for broken in [
            String::new(),
            new.clone(),
            format!("{one} blob 0\n{attributes}"),
            format!("{one} blob 0\n{two} missing\n{attributes}"),
            format!("{one} blob 0\n{two} tree 7\n{attributes}"),
            format!("{one} blob 0\n{one} blob 0\n{attributes}"),
            format!("{new}{attributes}{attributes}"),
        ] {
            assert_eq!(Blobs::parse(&broken, 2), None, "{broken}");
        }
    }
}
