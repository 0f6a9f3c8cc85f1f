//! Uploads of git bundles. A bundle is named by its SHA-256, and only a bundle with the correct hash is ever used.

use super::source::is_sha256;
use crate::{
    app::ground::gateway::Gateway,
    auth::principal::Principal,
    ground::{error::Error, invalid::Invalid, scope::Scope},
};
use domain::{ids::TenantId, limits, text};
use sha2::{Digest as _, Sha256};
use store::Store;

/// The client's declaration of a bundle, before its bytes.
#[derive(Debug, Clone)]
pub(crate) struct BundleHeader {
    pub(crate) sha256: String,
    pub(crate) size_bytes: u64,
}

/// An upload in progress. Each piece is stored as it arrives; an abandoned upload leaves pieces that are never used.
pub(crate) struct BundleUpload {
    store: Store,
    tenant: TenantId,
    header: BundleHeader,
    hash: Sha256,
    /// Bytes that do not fill a piece yet.
    gathered: Vec<u8>,
    /// The number of the next piece.
    piece: i32,
    received_bytes: u64,
}

impl BundleUpload {
    /// Begins an upload; `None` if the bundle is already stored.
    ///
    /// # Errors
    /// `bundle_too_large`, `bundle_invalid`, `store_unavailable`.
    pub(crate) async fn begin(
        gateway: &Gateway,
        principal: &Principal,
        header: BundleHeader,
    ) -> Result<Option<Self>, Error> {
        let (store, tenant) = (gateway.state.store.clone(), principal.tenant(Scope::Write)?);
        if header.size_bytes == 0 || header.size_bytes > limits::BUNDLE_BYTES_MAX {
            let message = format!(
                "the bundle is {} bytes; it must have 1 to {} bytes",
                header.size_bytes,
                limits::BUNDLE_BYTES_MAX
            );
            return Err(Invalid::BundleTooLarge.because(message));
        }
        if !is_sha256(&header.sha256) {
            return Err(Invalid::Bundle.because("sha256 must be 64 lower-case hexadecimal digits"));
        }
        if store.has_bundle(tenant, &header.sha256).await? {
            return Ok(None);
        }
        store.begin_bundle(tenant, &header.sha256, header.size_bytes).await?;
        let (hash, gathered) = (Sha256::new(), Vec::new());
        Ok(Some(Self { store, tenant, header, hash, gathered, piece: 0, received_bytes: 0 }))
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// `bundle_invalid`, `store_unavailable`.
    pub(crate) async fn add(&mut self, data: &[u8]) -> Result<(), Error> {
        self.received_bytes += data.len() as u64;
        if self.received_bytes > self.header.size_bytes {
            return Err(Invalid::Bundle.because("the bundle is longer than its header says"));
        }
        self.hash.update(data);
        self.gathered.extend_from_slice(data);
        while self.gathered.len() >= limits::BUNDLE_PIECE_BYTES {
            let rest = self.gathered.split_off(limits::BUNDLE_PIECE_BYTES);
            self.put_piece().await?;
            self.gathered = rest;
        }
        Ok(())
    }

    /// Completes the upload.
    ///
    /// # Errors
    /// `bundle_invalid`, `store_unavailable`.
    pub(crate) async fn finish(mut self) -> Result<(), Error> {
        if !self.gathered.is_empty() {
            self.put_piece().await?;
        }
        let sha256 = text::hex(&self.hash.finalize());
        if self.received_bytes != self.header.size_bytes || sha256 != self.header.sha256 {
            return Err(Invalid::Bundle.because("the bundle does not match its header; upload it again"));
        }
        Ok(self.store.complete_bundle(self.tenant, &self.header.sha256).await?)
    }

    async fn put_piece(&mut self) -> Result<(), Error> {
        let (tenant, id) = (self.tenant, &self.header.sha256);
        self.store.put_bundle_piece(tenant, id, self.piece, &self.gathered).await?;
        self.piece += 1;
        Ok(())
    }
}
