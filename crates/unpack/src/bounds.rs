//! The bounds of one layer.

/// What a layer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Entries of the archive. Beyond it: `layer_too_many_entries`.
    pub entries: u64,
    /// Bytes of all files together. Beyond it: `layer_too_large`.
    pub bytes: u64,
    /// Components of a path. Beyond it: `layer_too_deep`.
    pub depth: usize,
    /// Bytes of the archive for each byte of the blob. Beyond it: `layer_bomb`.
    pub ratio: u64,
}

/// Bytes of an archive that need no ratio: an archive of small files compresses very well.
pub const SMALL_ARCHIVE_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of a path, as the kernel bounds them. Beyond it: `layer_path_invalid`.
pub const PATH_BYTES_MAX: usize = 4096;
/// Memory of the process: the window of a zstd frame, and the headers of the archive.
pub const MEMORY_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Largest window of a zstd frame, as a power of two. Tools that build images stay below 2^27.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 10 * 1024 * 1024 * 1024, depth: 64, ratio: 50 }
    }
}
