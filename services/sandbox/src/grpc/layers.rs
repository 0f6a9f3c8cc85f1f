//! Calls about the layers of images, which belong to no session.

use super::call::id;
use crate::{
    error::Error,
    image::{blob::Blob, manifest::Manifest},
    session::shared::Shared,
};
use domain::ids::TenantId;
use futures::StreamExt as _;
use rpc::v1::{self, ErrorCode, put_layer_request::Part};
use std::{io, sync::Arc};
use tonic::Streaming;

pub(super) async fn put(
    shared: &Shared,
    mut parts: Streaming<v1::PutLayerRequest>,
) -> Result<v1::PutLayerResponse, Error> {
    let first = parts.message().await.map_err(interrupted)?.and_then(|message| message.part);
    let Some(Part::Header(header)) = first else {
        return Err(Error::refused(ErrorCode::ArgumentInvalid, "the first message must be the header"));
    };
    let blob = Blob::parse(&header)?;
    let tenant = match header.tenant_id.as_str() {
        "" => None,
        text => Some(id::<TenantId>("tenant_id", text)?),
    };
    let bytes = parts.map(|message| match message.map_err(interrupted)?.part {
        Some(Part::Data(data)) => Ok(data),
        Some(Part::Header(_)) | None => {
            Err(Error::refused(ErrorCode::ArgumentInvalid, "after the header only data may follow"))
        }
    });
    let created = shared.arrivals.take(tenant, &blob, bytes).await?;
    Ok(v1::PutLayerResponse { created })
}

/// Lists the layers of an image that the machine lacks.
pub(super) async fn check(
    shared: &Shared,
    request: v1::CheckLayersRequest,
) -> Result<v1::CheckLayersResponse, Error> {
    let image = Manifest::parse(&request.image.unwrap_or_default().diff_ids)?;
    let images = Arc::clone(&shared.images);
    let missing = tokio::task::spawn_blocking(move || images.missing(&image)).await;
    let missing = missing.map_err(|error| Error::io("look for layers")(io::Error::other(error)))?;
    Ok(v1::CheckLayersResponse { missing_diff_ids: missing.iter().map(ToString::to_string).collect() })
}

fn interrupted(status: tonic::Status) -> Error {
    Error::refused(ErrorCode::CallerLeft, format!("the layer was interrupted: {}", status.message()))
}
