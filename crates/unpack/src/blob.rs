//! The bytes of a layer on their way: counted, hashed and decompressed, with both digests at the end.

use crate::{
    bounds::{Bounds, SMALL_ARCHIVE_BYTES, ZSTD_WINDOW_LOG_MAX},
    refusal::Refusal,
};
use domain::text::hex;
use flate2::read::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use std::{
    cell::RefCell,
    io::{self, BufReader, Read},
    rc::Rc,
};

/// How the archive is compressed, by the media type of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// `…tar`
    None,
    /// `…tar+gzip`
    Gzip,
    /// `…tar+zstd`
    Zstd,
}

/// The bytes that a reader has seen.
#[derive(Default)]
struct Tally {
    bytes: u64,
    hash: Sha256,
}

/// A reader that counts and hashes.
struct HashReader<R> {
    inner: R,
    tally: Rc<RefCell<Tally>>,
}

impl<R: Read> Read for HashReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let mut tally = self.tally.borrow_mut();
        tally.bytes += count as u64;
        tally.hash.update(&buffer[..count]);
        Ok(count)
    }
}

/// The archive of a blob.
pub(crate) struct Blob<'a> {
    archive: HashReader<Box<dyn Read + 'a>>,
    of_blob: Rc<RefCell<Tally>>,
    of_archive: Rc<RefCell<Tally>>,
    ratio: u64,
}

impl<'a> Blob<'a> {
    pub(crate) fn open(
        blob: impl Read + 'a,
        compression: Compression,
        bounds: &Bounds,
    ) -> Result<Self, Refusal> {
        let of_blob = Rc::<RefCell<Tally>>::default();
        let counted = BufReader::new(HashReader { inner: blob, tally: Rc::clone(&of_blob) });
        let inner: Box<dyn Read + 'a> = match compression {
            Compression::None => Box::new(counted),
            // A blob may have several members.
            Compression::Gzip => Box::new(MultiGzDecoder::new(counted)),
            Compression::Zstd => {
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(counted).map_err(Refusal::Unreadable)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(Refusal::Unreadable)?;
                Box::new(decoder)
            }
        };
        let of_archive = Rc::<RefCell<Tally>>::default();
        let archive = HashReader { inner, tally: Rc::clone(&of_archive) };
        Ok(Self { archive, of_blob, of_archive, ratio: bounds.ratio })
    }

    /// Whether the archive is larger than an honest one would be.
    pub(crate) fn is_bomb(&self) -> bool {
        let archive = self.of_archive.borrow().bytes;
        archive > SMALL_ARCHIVE_BYTES && archive > self.of_blob.borrow().bytes.saturating_mul(self.ratio)
    }

    /// Reads what follows the end of the archive, and compares both digests.
    pub(crate) fn finish(mut self, blob: &str, archive: &str) -> Result<(), Refusal> {
        let mut buffer = [0; 64 * 1024];
        while self.archive.read(&mut buffer).map_err(Refusal::Unreadable)? > 0 {
            if self.is_bomb() {
                return Err(Refusal::Bomb(self.ratio));
            }
        }
        compare("blob", blob, &self.of_blob)?;
        compare("archive", archive, &self.of_archive)
    }
}

impl Read for Blob<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_bomb() {
            // Becomes `layer_bomb` where it is caught.
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a bomb"));
        }
        self.archive.read(buffer)
    }
}

fn compare(what: &'static str, expected: &str, tally: &Rc<RefCell<Tally>>) -> Result<(), Refusal> {
    let actual = hex(&std::mem::take(&mut tally.borrow_mut().hash).finalize());
    if actual == expected {
        Ok(())
    } else {
        Err(Refusal::Digest { what, expected: expected.to_owned(), actual })
    }
}
