//! Reads the large body of a gRPC call only for a caller with a key, and only when there is room for it.

use crate::{
    app::gateway::Gateway,
    auth::principal::Principal,
    errors::error::Error,
    grpc::status::to_status,
    memory::{bodies, room::SMALL_BODY_BYTES, taken_room::TakenRoom},
    scope::Scope,
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
    gateway: Gateway,
    head: Parts,
    /// Whom a large body is of; `None`: it is not large so far.
    owner: Option<Option<TenantId>>,
    read_bytes: usize,
}

/// Bounds the memory of a call's body, and what large ones take of the processors.
pub(super) fn with_room(gateway: Gateway, request: Request) -> Request {
    if bodies::is_streamed(request.uri().path()) {
        return request;
    }
    let (parts, body) = request.into_parts();
    let (head, pieces) = (parts.clone(), body.into_data_stream());
    let reading = Reading { pieces, gateway, head, owner: None, read_bytes: 0 };
    let body = stream::unfold(Some(reading), |reading| async move {
        let mut reading = reading?;
        let result = match reading.pieces.next().await {
            Some(Ok(piece)) => reading.take(&piece).await.map(|()| piece),
            Some(Err(error)) => return Some((Err(BoxError::from(error)), None)),
            None => return reading.end().await.err().map(|error| (Err(to_status(error).into()), None)),
        };
        match result {
            Ok(piece) => Some((Ok(piece), Some(reading))),
            Err(error) => Some((Err(to_status(error).into()), None)),
        }
    });
    Request::from_parts(parts, Body::from_stream(body))
}

impl Reading {
    /// Takes room at the piece that makes the body large. The length of a message is not known before it is read, so the room is that of the largest one.
    async fn take(&mut self, piece: &Bytes) -> Result<(), Error> {
        self.read_bytes += piece.len();
        if self.read_bytes <= SMALL_BODY_BYTES || self.owner.is_some() {
            return Ok(());
        }
        let tenant = owner(&self.head)?;
        self.owner = Some(tenant);
        let taken = TakenRoom::of(&self.head.extensions);
        self.gateway.take_body_room(tenant, rpc::MESSAGE_BYTES_MAX, &taken).await
    }

    /// Waits for the turn of a large body. Until it is here, it takes no processor.
    async fn end(self) -> Result<(), Error> {
        let Some(tenant) = self.owner else { return Ok(()) };
        self.gateway.take_turn(tenant, &TakenRoom::of(&self.head.extensions)).await
    }
}

/// The tenant that the caller acts for; `None` for the operator. Services without callers, such as reflection, take no large bodies.
fn owner(head: &Parts) -> Result<Option<TenantId>, Error> {
    let principal: &Principal = head.extensions.get().ok_or(Error::KeyMissing)?;
    Ok(principal.tenant(Scope::Read).ok())
}
