//! Ends the answers that are still streamed when the caller's key is revoked: over gRPC with UNAUTHENTICATED, over HTTP by their end.

use crate::{
    app::gateway::Gateway,
    auth::live_keys::{LiveKey, RequestKey},
    errors::error::Error,
    grpc::status::to_status,
};
use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::Response,
};
use http_body::{Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Ends the answer of a request with the key of its caller.
pub(super) async fn end_with_key(
    State(gateway): State<Gateway>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = RequestKey::default();
    request.extensions_mut().insert(caller.clone());
    let response = next.run(request).await;
    let is_whole = response.body().size_hint().exact().is_some();
    let Some(key) = caller.get().filter(|_| !is_whole) else { return response };
    let live = gateway.live_keys().watch(key);
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    // gRPC-Web has its status in the body, and a browser cannot tell it from a broken connection.
    let trailer = if kind == Some("application/grpc") { Trailer::Status } else { Trailer::None };
    response.map(|body| {
        let revoked = Box::pin(live.revoked().clone().cancelled_owned());
        Body::new(LiveBody { body, revoked, trailer: Some(trailer), _live: live })
    })
}

/// What follows an answer that is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trailer {
    None,
    Status,
}

/// An answer that ends with its key.
struct LiveBody {
    body: Body,
    revoked: Pin<Box<WaitForCancellationFutureOwned>>,
    /// `None` once it is cut.
    trailer: Option<Trailer>,
    _live: LiveKey,
}

impl HttpBody for LiveBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(trailer) = self.trailer else { return Poll::Ready(None) };
        if self.revoked.as_mut().poll(context).is_pending() {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        self.trailer = None;
        Poll::Ready(match trailer {
            Trailer::None => None,
            Trailer::Status => Some(Ok(Frame::trailers(refusal()))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.trailer.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn refusal() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // A status of ours has a short message and small details, which always fit.
    if to_status(Error::KeyUnknown).add_header(&mut trailers).is_err() {
        tracing::error!("the status of a revoked key cannot be sent");
    }
    trailers
}
