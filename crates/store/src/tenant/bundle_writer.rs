//! Stores a bundle as its bytes arrive. Only when all of them are there is its hash known, by which it is named.

use super::bundles::{BundleHead, Upload, UploadContent};
use crate::{Store, error::Error};
use domain::{ids::TenantId, limits, text};
use sha2::{Digest as _, Sha256};

/// A bundle that is not whole yet. If it is dropped, what is stored of it is removed within a day.
pub struct BundleWriter {
    store: Store,
    upload: Upload,
    hash: Sha256,
    /// Bytes that do not fill a piece yet.
    gathered: Vec<u8>,
    /// The number of the next piece.
    piece: i32,
    size_bytes: u64,
}

impl BundleWriter {
    /// Begins a bundle without bytes.
    ///
    /// # Errors
    /// `Db`.
    pub async fn begin(store: &Store, tenant: TenantId) -> Result<Self, Error> {
        let upload = store.begin_upload(tenant).await?;
        let (store, hash) = (store.clone(), Sha256::new());
        Ok(Self { store, upload, hash, gathered: vec![], piece: 0, size_bytes: 0 })
    }

    /// The number of bytes so far.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Adds the next bytes. The caller bounds their sum.
    ///
    /// # Errors
    /// `Db`.
    pub async fn add(&mut self, data: &[u8]) -> Result<(), Error> {
        self.size_bytes += data.len() as u64;
        self.hash.update(data);
        self.gathered.extend_from_slice(data);
        while self.gathered.len() >= limits::BUNDLE_PIECE_BYTES {
            let rest = self.gathered.split_off(limits::BUNDLE_PIECE_BYTES);
            self.put_piece().await?;
            self.gathered = rest;
        }
        Ok(())
    }

    /// Stores the rest of the bytes.
    ///
    /// # Errors
    /// `Db`.
    pub async fn close(mut self) -> Result<WholeBundle, Error> {
        if !self.gathered.is_empty() {
            self.put_piece().await?;
        }
        let sha256 = text::hex(&self.hash.finalize());
        Ok(WholeBundle { store: self.store, upload: self.upload, sha256, size_bytes: self.size_bytes })
    }

    async fn put_piece(&mut self) -> Result<(), Error> {
        self.store.put_upload_piece(&self.upload, self.piece, &self.gathered).await?;
        self.piece += 1;
        Ok(())
    }
}

/// A bundle whose bytes are all stored, before it has its name.
pub struct WholeBundle {
    store: Store,
    upload: Upload,
    /// The SHA-256 of all bytes, as lowercase hexadecimal digits.
    pub sha256: String,
    /// The number of bytes.
    pub size_bytes: u64,
}

impl WholeBundle {
    /// Gives the bundle its name, under which sessions can start from it, and returns the name. Clients find it by its `head`.
    ///
    /// # Errors
    /// `NotFound`: it took so long that its bytes were removed. `Db`: done or not.
    pub async fn publish(self, head: Option<&BundleHead>) -> Result<String, Error> {
        let content = UploadContent { sha256: &self.sha256, size_bytes: self.size_bytes, head };
        self.store.finish_upload(&self.upload, content).await?;
        Ok(self.sha256)
    }

    /// Removes the bytes.
    ///
    /// # Errors
    /// `Db`: then they are removed within a day.
    pub async fn discard(self) -> Result<(), Error> {
        self.store.discard_upload(&self.upload).await
    }
}
