//! Converts a file diff of the sandbox to OpenCode's form.

use crate::v1::{self, FileStatus};
use domain::{conversation::message::FileDiff, text::without_nul};

impl From<v1::FileDiff> for FileDiff {
    fn from(file: v1::FileDiff) -> Self {
        let status = match file.status() {
            FileStatus::Added => Some("added"),
            FileStatus::Modified => Some("modified"),
            FileStatus::Deleted => Some("deleted"),
            FileStatus::Unspecified => None,
        };
        Self {
            file: Some(file.path),
            patch: (!file.patch.is_empty()).then(|| without_nul(&file.patch).into_owned()),
            additions: file.additions.into(),
            deletions: file.deletions.into(),
            status: status.map(ToOwned::to_owned),
        }
    }
}
