//! What a workspace started from, and its path.

use crate::{
    error::{Error, blocking},
    image::{digest::Digest, manifest::Manifest},
    layout,
};
use domain::session::environment::SandboxOptions;
use rpc::v1::ErrorCode;
use serde::{Deserialize, Serialize};
use std::{io, path::Path};

/// The directory that becomes /workspace.
pub const TREE: &str = "tree";
/// The path of the workspace, as callers see it.
pub const DIRECTORY: &str = "/workspace";
const META: &str = "meta.json";

/// `meta.json`: what a workspace started from.
/// `{"base_commit":"9d3f…","origin":"https://example.com/r.git","base_is_ours":false,"slot":0,"opening":0,"boot":"5d2c…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The commit that changes are compared with.
    pub base_commit: String,
    /// The URL, "bundle", or empty.
    pub origin: String,
    /// Whether the service made the base commit, an empty one: no other repository has it.
    pub base_is_ours: bool,
    /// The user id of the pool that owns the files.
    pub slot: u32,
    /// How often the files of the session started from their source again. Earlier versions did not count.
    #[serde(default)]
    pub opening: u32,
    /// The image at `/`. Every sandbox of the workspace has the same.
    #[serde(default, skip_serializing_if = "Manifest::is_empty")]
    pub image: Manifest,
    /// The variables of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// What is installed in it, among the environment layers of its tenant. Earlier versions did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<Digest>,
    /// The script that runs at each start of a sandbox.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub start: String,
    /// What the programs of its sandboxes may also do.
    #[serde(default)]
    pub options: SandboxOptions,
    /// The boot of the machine in which the workspace was made. Earlier versions did not record it.
    #[serde(default)]
    pub boot: String,
}

impl Meta {
    /// Whether the workspace is of this opening; `None`: of any.
    pub fn is_of(&self, opening: Option<u32>) -> bool {
        opening.is_none_or(|opening| self.opening == opening)
    }

    /// Whether the machine was started since the workspace was made. The entries of execs that ran before may be gone.
    pub fn is_of_earlier_boot(&self, boot: &str) -> bool {
        self.boot != boot
    }

    /// Refuses a caller that means another opening.
    ///
    /// # Errors
    /// `workspace_missing`.
    pub fn require(&self, opening: Option<u32>) -> Result<(), Error> {
        if self.is_of(opening) {
            return Ok(());
        }
        let text = format!(
            "the machine has files of opening {} of the session, not those that it works with",
            self.opening
        );
        Err(Error::refused(ErrorCode::WorkspaceMissing, text))
    }

    /// Reads it; `None` if there is no workspace. Blocks.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        match std::fs::read(directory.join(META)) {
            // The machine crashed in the seconds after the workspace was made. The files are not whole either.
            Ok(bytes) if bytes.is_empty() => Ok(None),
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads it; `None` if there is no workspace.
    pub async fn find(directory: &Path) -> Result<Option<Self>, Error> {
        let directory = directory.to_owned();
        blocking("read the workspace's record", move || Self::read(&directory)).await
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<(), Error> {
        let written = serde_json::to_vec(self).map_err(io::Error::other);
        // After a crash of the machine the record may be gone, and the workspace is lost. Git did not wait for the disk with the files.
        let written = written.and_then(|bytes| layout::replace_quickly(&directory.join(META), &bytes));
        written.map_err(Error::io("write the workspace's record"))
    }
}
