//! The name of a mirror.

use crate::tree::source::Source;
use domain::{
    ids::{ProjectId, TenantId},
    text,
};
use sha2::{Digest as _, Sha256};

/// The name of a mirror: only sessions of its tenant and its project have it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MirrorKey {
    pub tenant: TenantId,
    pub project: ProjectId,
    /// The SHA-256 of the way to the server and of the URL, in hexadecimal digits.
    pub source: Box<str>,
}

impl MirrorKey {
    /// The mirror of a source for the sessions of a project; `None` for a source that is not on a server.
    pub fn of(tenant: TenantId, project: &ProjectId, source: &Source) -> Option<Self> {
        let (way, url) = match source {
            Source::Door { url, .. } => ("door", url),
            Source::Remote { url, .. } => ("remote", url),
            Source::Bundle(_) | Source::Directory(_) => return None,
        };
        let digest = Sha256::new().chain_update(way).chain_update([0]).chain_update(url).finalize();
        Some(Self { tenant, project: project.clone(), source: text::hex(&digest).into() })
    }
}
