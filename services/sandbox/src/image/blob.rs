//! A layer as its sender describes it.

use super::digest::Digest;
use crate::error::Error;
use rpc::v1::{self, ErrorCode};

/// The kinds of layers that registries have, and how `flotilla-unpack` calls their compression.
const MEDIA_TYPES: [(&str, &str); 6] = [
    ("application/vnd.oci.image.layer.v1.tar", "none"),
    ("application/vnd.oci.image.layer.v1.tar+gzip", "gzip"),
    ("application/vnd.oci.image.layer.v1.tar+zstd", "zstd"),
    ("application/vnd.docker.image.rootfs.diff.tar", "none"),
    ("application/vnd.docker.image.rootfs.diff.tar.gzip", "gzip"),
    ("application/vnd.docker.image.rootfs.diff.tar.zstd", "zstd"),
];

#[derive(Debug, Clone)]
pub struct Blob {
    /// The digest of its bytes.
    pub digest: Digest,
    /// The digest of the archive in it.
    pub diff_id: Digest,
    pub compression: &'static str,
    /// Whether its bytes are checked even if the machine has the layer.
    pub is_proof: bool,
}

impl Blob {
    /// Parses the header of an upload.
    ///
    /// # Errors
    /// `argument_invalid`.
    pub fn parse(header: &v1::LayerHeader) -> Result<Self, Error> {
        let known = MEDIA_TYPES.iter().find(|(name, _)| *name == header.media_type);
        let (_, compression) = known.ok_or_else(|| {
            let text =
                format!("{:?} is not the media type of a layer that can be unpacked", header.media_type);
            Error::refused(ErrorCode::ArgumentInvalid, text)
        })?;
        let (digest, diff_id) = (header.digest.parse()?, header.diff_id.parse()?);
        Ok(Self { digest, diff_id, compression, is_proof: header.is_proof })
    }
}
