//! The records of merges, which no sandbox sees. An [`OpenMerge`] exists from before the first file is written until the merge is closed or undone. A
//! [`MergeRecord`] says that a merge is done: once the service has written it into the directory of the parent's workspace, the files keep the merge. The copy, which
//! people may delete at any time, gets a record afterwards, for its next merge.

use crate::{
    error::{Error, blocking},
    layout,
};
use domain::ids::SessionId;
use rpc::v1;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// In the directory of the workspace that takes the changes.
const OPEN: &str = "merging.json";
/// The record of a merge that is done, in the same directory, until the service closes the merge.
const DONE: &str = "merge-done.json";
/// In the directory of the copy.
const MERGED: &str = "merged.json";

/// The name of a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MergeId {
    /// The session whose workspace takes the changes.
    pub(super) workspace: SessionId,
    /// The opening of that workspace. Files that start from their source again have no earlier merge.
    pub(super) opening: u32,
    /// The session that merges.
    pub(super) session: SessionId,
    /// Its name for the merge.
    pub(super) output_id: String,
}

/// A merge whose files are being written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenMerge {
    pub(super) id: MergeId,
    /// The session that has the changes.
    pub(super) copy: SessionId,
    /// The snapshot of the files before the merge.
    pub(super) before: String,
    /// The snapshot that the merge writes.
    pub(super) after: String,
}

/// A merge that is done: the newest one of a copy, or the one that the files keep and that is not closed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MergeRecord {
    pub(super) id: MergeId,
    /// The snapshot of the copy. The next merge takes over what changed since.
    pub(super) snapshot: String,
    pub(super) answer: MergeAnswer,
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

impl MergeId {
    /// Whether both merges write the same files.
    pub(super) fn has_files_of(&self, other: &Self) -> bool {
        self.workspace == other.workspace && self.opening == other.opening
    }
}

impl OpenMerge {
    /// Reads the open merge of the workspace in `directory`, if there is one.
    pub(super) async fn find(directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(OPEN);
        blocking("read the record of an open merge", move || read(&path)).await
    }

    /// Writes it to the directory of the workspace.
    pub(super) async fn write(&self, directory: &Path) -> Result<(), Error> {
        // The service may have stopped while it closed an earlier merge, which may have the same name.
        remove(directory.join(DONE)).await?;
        write("write the record of an open merge", directory.join(OPEN), self).await
    }

    /// Removes that of the workspace in `directory`, if there is one: the merge has changed no file, is done, or is undone.
    pub(super) async fn remove(directory: &Path) -> Result<(), Error> {
        // In this order: an open merge that is not done is undone.
        remove(directory.join(OPEN)).await?;
        remove(directory.join(DONE)).await
    }
}

impl MergeRecord {
    /// The path of the record in `directory`, which holds the workspace of the parent.
    pub(super) fn of_parent(directory: &Path) -> PathBuf {
        directory.join(DONE)
    }

    /// The place of the record of the copy in `directory`.
    pub(super) fn of_copy(directory: &Path) -> PathBuf {
        directory.join(MERGED)
    }

    /// Reads the record at a place, if there is one.
    pub(super) async fn find(place: PathBuf) -> Result<Option<Self>, Error> {
        blocking("read the record of a merge", move || read(&place)).await
    }

    /// Reads the record at a place if it is that of `id`.
    pub(super) async fn find_of(place: PathBuf, id: &MergeId) -> Result<Option<Self>, Error> {
        Ok(Self::find(place).await?.filter(|record| record.id == *id))
    }

    /// Writes it to a place. If that fails, the earlier one stays.
    pub(super) async fn write(&self, place: PathBuf) -> Result<(), Error> {
        write("write the record of a merge", place, self).await
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn remove(path: PathBuf) -> Result<(), Error> {
    blocking("remove the record of a merge", move || match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    })
    .await
}

async fn write(doing: &'static str, path: PathBuf, record: &impl Serialize) -> Result<(), Error> {
    let written = serde_json::to_vec(record);
    blocking(doing, move || layout::replace(&path, &written?)).await
}
