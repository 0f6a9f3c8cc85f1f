//! Images: what sandboxes see at `/` instead of the machine's own programs.

use serde::{Deserialize, Serialize};

/// An image as its registry described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// With its digest: `ghcr.io/acme/dev@sha256:…`.
    pub reference: String,
    /// The name of the secret with which its registry is asked; `None`: anybody may read it. Recorded with the reference, so that a credential that is
    /// set later goes to no registry that it is not meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Lowest first.
    pub layers: Vec<ImageLayer>,
    /// The variables of its processes: `NAME=value`.
    pub env: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageLayer {
    /// The digest of its compressed bytes.
    pub blob_digest: String,
    /// How they are compressed.
    pub media_type: String,
    /// The digest of the archive in them.
    pub diff_id: String,
}
