//! Why a layer is not unpacked.

use std::io;

/// The reason. Its text names the entry of the archive, if there is one.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The bytes are not those that the manifest names.
    #[error(
        "the {what} of the layer is sha256:{actual}, not sha256:{expected}: the registry sent other bytes, or the download was cut"
    )]
    Digest {
        /// `blob` or `archive`.
        what: &'static str,
        /// The digest of the manifest or of the configuration; hexadecimal.
        expected: String,
        /// The digest of the bytes that came; hexadecimal.
        actual: String,
    },
    /// The archive has more entries than allowed.
    #[error("the layer has more than {0} entries")]
    TooManyEntries(u64),
    /// The files have more bytes than allowed.
    #[error("the files of the layer have more than {0} bytes")]
    TooLarge(u64),
    /// The blob is compressed so well that only an attack explains it.
    #[error("the layer is more than {0} times as large as its blob")]
    Bomb(u64),
    /// A path has too many components.
    #[error("{path:?} has more than {limit} components")]
    TooDeep {
        path: String,
        /// The bound.
        limit: usize,
    },
    /// A path leaves the layer, goes through a link, or is no path.
    #[error("{path:?} is not a path inside the layer: {reason}")]
    Path {
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An entry contradicts another one.
    #[error("{path:?} contradicts an earlier entry of the layer: {reason}")]
    Contradiction { path: String, reason: &'static str },
    /// A file has holes, of which the archive has no bytes.
    #[error(
        "{path:?} is a sparse file, and a layer may have none; build the image with a tool that stores files whole"
    )]
    Sparse { path: String },
    /// The blob is no archive, or is cut.
    #[error("the layer is not a readable archive")]
    Unreadable(#[source] io::Error),
    #[error("cannot write {path:?}")]
    Write {
        /// The path inside the layer.
        path: String,
        #[source]
        source: io::Error,
    },
}

impl Refusal {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Digest { .. } => "layer_digest_wrong",
            Self::TooManyEntries(_) => "layer_too_many_entries",
            Self::TooLarge(_) => "layer_too_large",
            Self::Bomb(_) => "layer_bomb",
            Self::TooDeep { .. } => "layer_too_deep",
            Self::Path { .. } => "layer_path_invalid",
            Self::Contradiction { .. } | Self::Sparse { .. } => "layer_entry_invalid",
            Self::Unreadable(_) => "layer_unreadable",
            Self::Write { .. } => "layer_write_failed",
        }
    }
}
