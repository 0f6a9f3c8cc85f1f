//! Files that were cloned before their workspace is opened. What their repository describes decides what the workspace needs, so the caller sees
//! it first.

use super::slots::Slot;
use rpc::v1;
use std::time::Instant;

/// The cloned files of a source, in the directory that becomes the workspace. Without it, what is there is removed.
#[derive(Debug)]
pub struct Draft {
    pub key: DraftKey,
    pub slot: Slot,
    /// The commit that changes are compared with.
    pub base_commit: String,
    /// Whether the service made the base commit.
    pub base_is_ours: bool,
    /// The URL, or "bundle".
    pub origin: String,
    /// Whether there are submodules or files of Git LFS.
    pub has_linked_content: bool,
    /// What the repository configures in its base commit.
    pub configuration: v1::ConfigurationFiles,
    /// When a call last asked for them.
    pub asked_at: Instant,
}

/// What a caller asks to clone. Other answers need another clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftKey {
    /// A URL, or the SHA-256 of a bundle.
    pub source: String,
    /// Branch, tag or commit; empty: the default one.
    pub revision: String,
    /// The branch on which the files begin; empty: that of the revision.
    pub branch: String,
    /// Whether the last commit holds uncommitted changes.
    pub uncommitted: bool,
    /// Whether submodules come through the door of the session.
    pub has_door: bool,
    /// The repository whose objects of Git LFS the door reads, as the caller names it; empty: none.
    pub lfs_url: String,
    /// The session that has objects of Git LFS of these files, as the caller names it; empty: none.
    pub lfs_session: String,
    /// The number of the opening.
    pub opening: u32,
}
