//! The record of the newest merge into the files of a workspace: written before the first file is, and again, with the answer, after the last one. And the record
//! of the newest merge of a copy, in the directory of the copy.

use crate::{
    error::{Error, blocking},
    layout,
};
use rpc::v1;
use serde::{Deserialize, Serialize};
use std::{fs, io, path::Path};

/// The files, in the directories of the workspaces. No sandbox sees them.
const NAME: &str = "merge.json";
const MERGED: &str = "merged";

/// A merge. `{"id":"ses_1/prt_1","before":"9d3f…","after":"5d2c…","answer":null}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MergeRecord {
    /// The session that merged, and its name for the merge.
    pub(super) id: String,
    /// The snapshot of the files before the merge.
    pub(super) before: String,
    /// The snapshot that the merge writes.
    pub(super) after: String,
    /// `None`: some files may not be written.
    pub(super) answer: Option<MergeAnswer>,
}

/// What the caller was told about a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MergeAnswer {
    pub(super) files_merged: u32,
    pub(super) conflicts: Vec<String>,
    pub(super) conflicts_total: u32,
    pub(super) conflicts_path: String,
    pub(super) left_out: Vec<String>,
}

impl From<MergeAnswer> for v1::MergeCopyResponse {
    fn from(answer: MergeAnswer) -> Self {
        let MergeAnswer { files_merged, conflicts, conflicts_total, conflicts_path, left_out } = answer;
        Self { files_merged, conflicts, conflicts_total, conflicts_path, left_out }
    }
}

impl MergeRecord {
    /// Reads the record of the workspace in `directory`. `None`: nothing was merged.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) async fn find(directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(NAME);
        blocking("read the record of a merge", move || match fs::read(path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    /// Replaces the record of the workspace in `directory`.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) async fn write(&self, directory: &Path) -> Result<(), Error> {
        let (path, written) = (directory.join(NAME), serde_json::to_vec(self));
        blocking("write the record of a merge", move || layout::replace(&path, &written?)).await
    }

    /// Removes the record of the workspace in `directory`, because its merge has changed no file or was undone.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) async fn remove(directory: &Path) -> Result<(), Error> {
        let path = directory.join(NAME);
        blocking("remove the record of a merge", move || fs::remove_file(path)).await
    }
}

/// Gives the snapshot of the copy in `directory` that was merged last. `None`: it was never merged.
///
/// # Errors
/// Those of the file system.
pub(super) async fn find_merged(directory: &Path) -> Result<Option<String>, Error> {
    let path = directory.join(MERGED);
    blocking("read what was merged", move || match fs::read_to_string(path) {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    })
    .await
}

/// Records the snapshot of the copy in `directory` that was merged. The next merge takes over what changed since.
///
/// # Errors
/// Those of the file system.
pub(super) async fn write_merged(directory: &Path, snapshot: &str) -> Result<(), Error> {
    let (path, content) = (directory.join(MERGED), snapshot.as_bytes().to_vec());
    blocking("record what was merged", move || layout::replace_quickly(&path, &content)).await
}
