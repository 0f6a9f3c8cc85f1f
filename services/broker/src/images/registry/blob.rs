//! The bytes of a layer on their way: counted and hashed.

use super::http::{cut, host_of};
use crate::images::{
    content::{digest::DigestSum, manifest::Layer},
    error::ImageError,
};
use bytes::Bytes;
use reqwest::Response;

pub(crate) struct BlobReader {
    response: Response,
    layer: Layer,
    sum: DigestSum,
    bytes: u64,
}

impl BlobReader {
    /// # Errors
    /// `DigestWrong` if the registry announces another length than the manifest.
    pub(crate) fn new(response: Response, layer: Layer) -> Result<Self, ImageError> {
        match response.content_length() {
            Some(length) if length != layer.bytes => Err(wrong_length(&layer, length)),
            _ => Ok(Self { response, layer, sum: DigestSum::new(), bytes: 0 }),
        }
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next bytes. `None`: the layer is whole, and its digest is right.
    ///
    /// # Errors
    /// `DigestWrong`, `Failed`.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ImageError> {
        let piece = self.response.chunk().await;
        let piece = piece.map_err(|error| cut(&host_of(self.response.url()), &error))?;
        if let Some(piece) = piece {
            self.bytes = self.bytes.saturating_add(piece.len() as u64);
            if self.bytes > self.layer.bytes {
                // A registry that never ends must not fill anything.
                let Layer { digest, bytes, .. } = &self.layer;
                let text = format!("the layer {digest} has more than its {bytes} bytes");
                return Err(ImageError::DigestWrong(text));
            }
            self.sum.add(&piece);
            return Ok(Some(piece));
        }
        if self.bytes != self.layer.bytes {
            return Err(wrong_length(&self.layer, self.bytes));
        }
        let digest = std::mem::replace(&mut self.sum, DigestSum::new()).finish();
        if digest != self.layer.digest {
            let text = format!("the layer {} has the digest {digest}", self.layer.digest);
            return Err(ImageError::DigestWrong(text));
        }
        Ok(None)
    }
}

fn wrong_length(layer: &Layer, bytes: u64) -> ImageError {
    let Layer { digest, bytes: wanted, .. } = layer;
    ImageError::DigestWrong(format!("the layer {digest} has {bytes} bytes instead of {wanted}"))
}
