//! Uploads of git bundles. A bundle is named by its SHA-256, and only a bundle with the correct hash is ever used.

use super::bundle_head::{self, HEAD_BYTES};
use crate::{
    app::{admission, gateway::Gateway},
    auth::principal::Principal,
    errors::{error::Error, invalid::Invalid},
    memory::room::Room,
    quotas::Growth,
    scope::Scope,
};
use domain::{
    ids::TenantId,
    limits,
    text::{is_object_id, is_sha256},
};
use shares::Permit;
use std::sync::Arc;
use store::tenant::{bundle_writer::BundleWriter, bundles::BundleHead};

/// The client's declaration of a bundle, before its bytes.
#[derive(Debug, Clone)]
pub(crate) struct BundleHeader {
    pub(crate) sha256: String,
    pub(crate) size_bytes: u64,
}

/// Finds a bundle of the tenant that begins as `head` says.
///
/// # Errors
/// `scope_missing`, `bundle_invalid`, `store_unavailable`.
pub(crate) async fn find(
    gateway: &Gateway,
    principal: &Principal,
    head: &BundleHead,
) -> Result<Option<String>, Error> {
    let tenant = principal.account(Scope::Write)?.tenant;
    if !is_object_id(&head.commit) {
        return Err(Invalid::Bundle
            .because("commit must be the id of a commit: 40 or 64 lower-case hexadecimal digits"));
    }
    Ok(gateway.state.store.find_bundle_of(tenant, head).await?)
}

/// An upload in progress. Each piece is stored as it arrives; the pieces of an abandoned upload are never used.
pub(crate) struct BundleUpload {
    room: Arc<Room>,
    tenant: TenantId,
    header: BundleHeader,
    writer: BundleWriter,
    /// The first bytes, at most [`HEAD_BYTES`].
    start: Vec<u8>,
    /// Keeps room in this process for the bytes that Postgres does not have yet.
    _permit: Permit,
}

impl BundleUpload {
    /// Begins an upload; `None` if the bundle is already stored.
    ///
    /// # Errors
    /// `bundle_too_large`, `bundle_invalid`, `storage_full`, `requests_too_many`, `store_unavailable`.
    pub(crate) async fn begin(
        gateway: &Gateway,
        principal: &Principal,
        header: BundleHeader,
    ) -> Result<Option<Self>, Error> {
        let (state, account) = (&gateway.state, principal.account(Scope::Write)?);
        let tenant = account.tenant;
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
        if state.store.has_bundle(tenant, &header.sha256).await? {
            return Ok(None);
        }
        admission::admit(state, account, &[Growth::bytes(header.size_bytes)]).await?;
        let permit = state.room.for_upload(tenant).await?;
        let (room, writer) = (Arc::clone(&state.room), BundleWriter::begin(&state.store, tenant).await?);
        Ok(Some(Self { room, tenant, header, writer, start: vec![], _permit: permit }))
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// `bundle_invalid`, `requests_too_many`, `store_unavailable`.
    pub(crate) async fn add(&mut self, data: &[u8]) -> Result<(), Error> {
        if self.writer.size_bytes() + data.len() as u64 > self.header.size_bytes {
            return Err(Invalid::Bundle.because("the bundle is longer than its header says"));
        }
        let missing = (HEAD_BYTES as usize).saturating_sub(self.start.len());
        self.start.extend_from_slice(&data[..missing.min(data.len())]);
        // Other bundles and bodies of the tenant may come between two pieces.
        let _turn = self.room.turn(Some(self.tenant)).await?;
        Ok(self.writer.add(data).await?)
    }

    /// Completes the upload.
    ///
    /// # Errors
    /// `bundle_invalid`, `bundle_not_found`, `store_unavailable`.
    pub(crate) async fn finish(self) -> Result<(), Error> {
        let bundle = self.writer.close().await?;
        if bundle.size_bytes != self.header.size_bytes || bundle.sha256 != self.header.sha256 {
            bundle.discard().await?;
            return Err(Invalid::Bundle.because("the bundle does not match its header; upload it again"));
        }
        Ok(bundle.publish(bundle_head::read(&self.start).as_ref()).await.map(drop)?)
    }
}
