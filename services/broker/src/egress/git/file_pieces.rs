//! A file as the body of a request, piece by piece.

use bytes::Bytes;
use futures::{TryStreamExt as _, stream};
use tokio::{
    fs::File,
    io::{self, AsyncReadExt as _},
};

const PIECE_BYTES: usize = 64 * 1024;

/// Reads a file to its end.
pub(crate) fn pieces(file: File) -> impl stream::Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let length = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece).await?;
        Ok((length > 0).then(|| (Bytes::from(piece), file)))
    })
    .into_stream()
}
