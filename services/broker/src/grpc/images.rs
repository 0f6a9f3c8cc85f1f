//! The calls about images.

use super::ids::{project, tenant};
use crate::{
    error::Error,
    images::{
        error::ImageError,
        puller::{Puller, ResolvedImage},
        request::ImageRequest,
        stream::LayerStream,
    },
};
use bytes::Bytes;
use rpc::v1;
use tonic::Status;

/// A piece of a layer, or the reason for the end.
pub(super) type StreamItem = Result<Bytes, ImageError>;

pub(super) async fn resolve(
    puller: &Puller,
    request: v1::ResolveImageRequest,
) -> Result<v1::ResolveImageResponse, Error> {
    let v1::ResolveImageRequest { tenant_id, project_id, reference, credential } = request;
    let request = ImageRequest {
        tenant: tenant(&tenant_id)?,
        project: project(&project_id)?,
        reference: reference.parse()?,
        credential: name(&credential)?,
    };
    let ResolvedImage { digest, reference, layers, configuration } = puller.resolve(&request).await?;
    let layers = layers.into_iter().zip(configuration.diff_ids).map(|(layer, diff_id)| v1::ImageLayer {
        blob_digest: layer.digest.to_string(),
        blob_bytes: layer.bytes,
        media_type: layer.media_type.to_owned(),
        diff_id: diff_id.to_string(),
    });
    Ok(v1::ResolveImageResponse {
        digest: digest.to_string(),
        reference: reference.to_string(),
        layers: layers.collect(),
        config: Some(v1::ImageConfig {
            env: configuration.environment,
            working_dir: configuration.working_directory,
            user: configuration.user,
        }),
    })
}

pub(super) async fn pull(puller: &Puller, request: v1::PullLayerRequest) -> Result<LayerStream, Error> {
    let v1::PullLayerRequest { tenant_id, project_id, reference, credential, blob_digest } = request;
    let request = ImageRequest {
        tenant: tenant(&tenant_id)?,
        project: project(&project_id)?,
        reference: reference.parse()?,
        credential: name(&credential)?,
    };
    let layer = blob_digest.parse();
    let layer = layer.map_err(|_| Error::ArgumentInvalid("the digest of the layer is none of SHA-256"))?;
    Ok(puller.pull(&request, &layer).await?)
}

pub(super) fn to_response(item: StreamItem) -> Result<v1::PullLayerResponse, Status> {
    item.map(|data| v1::PullLayerResponse { data: data.into() }).map_err(|error| {
        tracing::debug!(error.code = error.code().as_str(), "PullLayer ended early: {error}");
        Error::from(error).to_status()
    })
}

/// Parses the name of a secret. `None`: anonymous.
fn name(text: &str) -> Result<Option<domain::secret::SecretName>, Error> {
    if text.is_empty() { Ok(None) } else { Ok(Some(text.parse()?)) }
}
