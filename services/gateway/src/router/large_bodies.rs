//! Reads the large body of a gRPC call only for a caller with a key, and only when there is room for it. The methods of a service see the
//! caller only after they have received the whole message.

use crate::{
    app::ground::gateway::Gateway,
    ground::{bodies, error::Error, room::SMALL_BODY_BYTES, scope::Scope, taken_room::TakenRoom},
    grpc::{service::credentials_of, status::to_status},
};
use axum::{
    BoxError,
    body::{Body, Bytes},
    extract::Request,
    http::request::Parts,
};
use domain::ids::TenantId;
use futures::{StreamExt as _, stream};

/// A body that is read.
struct Reading {
    pieces: axum::body::BodyDataStream,
    /// `None` once the room is taken.
    waits: Option<(Gateway, Parts)>,
    read_bytes: usize,
}

/// Bounds the memory of a call's body.
pub(super) fn with_room(gateway: Gateway, request: Request) -> Request {
    if bodies::is_streamed(request.uri().path()) {
        return request;
    }
    let (parts, body) = request.into_parts();
    let head = parts.clone();
    let reading = Reading { pieces: body.into_data_stream(), waits: Some((gateway, head)), read_bytes: 0 };
    let body = stream::unfold(Some(reading), |reading| async move {
        let mut reading = reading?;
        let piece = reading.pieces.next().await?;
        match reading.take(piece.map_err(BoxError::from)).await {
            Ok(piece) => Some((Ok(piece), Some(reading))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Request::from_parts(parts, Body::from_stream(body))
}

impl Reading {
    async fn take(&mut self, piece: Result<Bytes, BoxError>) -> Result<Bytes, BoxError> {
        let piece = piece?;
        self.read_bytes += piece.len();
        if self.read_bytes > SMALL_BODY_BYTES
            && let Some((gateway, head)) = self.waits.take()
        {
            take_room(&gateway, &head).await.map_err(|error| BoxError::from(to_status(error)))?;
        }
        Ok(piece)
    }
}

/// The length of a message is not known before it is read, so the room is that of the largest one.
async fn take_room(gateway: &Gateway, head: &Parts) -> Result<(), Error> {
    let tenant = tenant_of(gateway, head).await?;
    gateway.take_body_room(tenant, rpc::MESSAGE_BYTES_MAX, &TakenRoom::of(&head.extensions)).await
}

/// The tenant that the caller acts for; `None` for the operator.
async fn tenant_of(gateway: &Gateway, head: &Parts) -> Result<Option<TenantId>, Error> {
    let credentials = credentials_of(&head.headers, &head.extensions)?;
    if gateway.is_operators(credentials)? {
        return Ok(None);
    }
    gateway.authenticate(credentials).await?.tenant(Scope::Read).map(Some)
}
