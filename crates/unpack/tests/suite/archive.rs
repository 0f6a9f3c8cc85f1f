//! Archives that are built entry by entry, as tools and attackers build them.
#![allow(clippy::unwrap_used)]

use sha2::{Digest as _, Sha256};
use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
};
use tar::{EntryType, Header};

/// The modification time of every entry.
pub(crate) const MODIFIED_S: i64 = 1_000_000_000;

#[derive(Default)]
pub(crate) struct Archive(Vec<u8>);

impl Archive {
    pub(crate) fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(EntryType::Directory, path, mode, "", b"")
    }

    pub(crate) fn file(self, path: &str, mode: u32, content: &str) -> Self {
        self.entry(EntryType::Regular, path, mode, "", content.as_bytes())
    }

    pub(crate) fn link(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, path, 0o777, target, b"")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Link, path, 0o644, target, b"")
    }

    pub(crate) fn device(self, path: &str) -> Self {
        self.entry(EntryType::Block, path, 0o666, "", b"")
    }

    pub(crate) fn pipe(self, path: &str) -> Self {
        self.entry(EntryType::Fifo, path, 0o666, "", b"")
    }

    /// A file whose name needs an entry of its own.
    pub(crate) fn long_file(self, path: &str, content: &str) -> Self {
        let name = [path.as_bytes(), b"\0"].concat();
        self.entry(EntryType::GNULongName, "././@LongLink", 0o644, "", &name).file("short", 0o644, content)
    }

    /// A file of GNU tar that is one hole of `bytes`.
    pub(crate) fn sparse(mut self, path: &str, bytes: u64) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_path(path).unwrap();
        header.set_mode(0o644);
        header.set_mtime(MODIFIED_S.unsigned_abs());
        header.set_size(0);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.sparse[0].set_offset(bytes);
        gnu.sparse[0].set_length(0);
        gnu.set_real_size(bytes);
        header.set_cksum();
        self.0.write_all(header.as_bytes()).unwrap();
        self
    }

    /// A file with a record of pax.
    pub(crate) fn with_pax(self, record: &str, path: &str, content: &str) -> Self {
        // A record begins with its own length.
        let bare = record.len() + 2;
        let length = bare + (bare + 2).to_string().len();
        let record = format!("{length} {record}\n");
        self.entry(EntryType::XHeader, "pax", 0o644, "", record.as_bytes()).file(path, 0o644, content)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [&self.0[..], &[0; 1024]].concat()
    }

    /// Headers are written by hand: the library refuses hostile ones.
    fn entry(mut self, kind: EntryType, path: &str, mode: u32, target: &str, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(MODIFIED_S.unsigned_abs());
        header.set_size(content.len() as u64);
        let old = header.as_old_mut();
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        self.0.write_all(header.as_bytes()).unwrap();
        self.0.write_all(content).unwrap();
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// Unpacks as a program without walls would: joins paths and follows links.
    pub(crate) fn unpack_without_walls(&self, directory: &Path) {
        let bytes = self.bytes();
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = directory.join(entry.path().unwrap());
            match entry.header().entry_type() {
                EntryType::Directory => fs::create_dir_all(path).unwrap(),
                EntryType::Symlink => {
                    std::os::unix::fs::symlink(entry.link_name().unwrap().unwrap(), path).unwrap();
                }
                _ => {
                    let mut content = vec![];
                    entry.read_to_end(&mut content).unwrap();
                    fs::write(path, content).unwrap();
                }
            }
        }
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
