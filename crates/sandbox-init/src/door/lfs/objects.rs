//! Reads objects of Git LFS into a directory, each by its SHA-256, some at the same time. Nothing that the server sends is used before its length and its
//! SHA-256 are those of the pointer.

use super::client::{Client, Failure, broken};
use domain::{egress::lfs::pointer::LfsPointer, text::hex};
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, File},
    io::{self, Read, Write as _},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Objects that are read at the same time: most of the time goes into opening connections. The door has room for more.
const READERS: usize = 4;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// Where the objects come from, and where they go.
#[derive(Debug)]
pub(super) struct ObjectReader<'a> {
    pub(super) client: Client<'a>,
    /// Where the contents are kept.
    pub(super) objects: &'a Path,
}

impl ObjectReader<'_> {
    /// Reads the objects, and returns those that the server does not have.
    pub(super) fn read(&self, wanted: &[LfsPointer]) -> Result<Vec<LfsPointer>, Failure> {
        let next = AtomicUsize::new(0);
        let results: Vec<Result<Vec<LfsPointer>, Failure>> = thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS.min(wanted.len()))
                .map(|_| scope.spawn(|| self.read_next(wanted, &next)))
                .collect();
            let panicked = |_| Err(Failure::Io(io::Error::other("a thread ended early")));
            readers.into_iter().map(|reader| reader.join().unwrap_or_else(panicked)).collect()
        });
        let mut missing = vec![];
        for read in results {
            missing.extend(read?);
        }
        Ok(missing)
    }

    /// Reads objects until none is left, and returns those that the server does not have.
    fn read_next(&self, wanted: &[LfsPointer], next: &AtomicUsize) -> Result<Vec<LfsPointer>, Failure> {
        let mut missing = vec![];
        while let Some(pointer) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            match self.read_object(pointer) {
                Ok(()) => {}
                Err(failure) if failure.has_code("git_lfs_missing") => missing.push(pointer.clone()),
                Err(failure) => {
                    // The other readers end too.
                    next.store(wanted.len(), Ordering::Relaxed);
                    return Err(failure);
                }
            }
        }
        Ok(missing)
    }

    fn read_object(&self, pointer: &LfsPointer) -> Result<(), Failure> {
        let place = self.objects.join(pointer.oid());
        let part = place.with_extension("part");
        let body = self.client.object(pointer)?;
        let mut file = File::create(&part)?;
        let (length, sha256) = copy(body.take(pointer.size().saturating_add(1)), &mut file)?;
        if length < pointer.size() {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        if length > pointer.size() || sha256 != pointer.oid() {
            let text = format!(
                "{} sends an object of Git LFS with other bytes than its pointer names: {}",
                self.client.repository,
                pointer.oid()
            );
            return Err(Failure::refusal("git_lfs_object_invalid", text));
        }
        Ok(fs::rename(part, place)?)
    }
}

/// Copies everything, and returns its length and its SHA-256.
fn copy(mut from: impl Read, to: &mut File) -> Result<(u64, String), Failure> {
    let (mut buffer, mut length, mut hash) = (vec![0; PIECE_BYTES], 0, Sha256::new());
    loop {
        let count = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other.map_err(broken)?,
        };
        if count == 0 {
            return Ok((length, hex(&hash.finalize())));
        }
        length += count as u64;
        hash.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
    }
}
