//! The router of the HTTP API, with the layers that all operations share.

use super::{
    contract::{document, table, unsupported},
    refusal,
};
use crate::app::gateway::Gateway;
use axum::{
    Router,
    http::{HeaderValue, Method, header, request::Parts},
};
use tower_http::{
    compression::{
        CompressionLayer,
        predicate::{NotForContentType, Predicate as _, SizeAbove},
    },
    cors::{AllowHeaders, AllowOrigin, CorsLayer},
};

/// Responses from this size on are compressed; bytes, as in OpenCode.
const COMPRESSED_FROM_BYTES: u64 = 1_024;

/// The routes of all operations.
pub(crate) fn router(gateway: &Gateway) -> Router {
    let operations = document::with_document(table::operations());
    let router =
        operations.into_iter().fold(Router::new(), |router, operation| operation.serve(gateway, router));
    let compression = CompressionLayer::new()
        .compress_when(SizeAbove::new(COMPRESSED_FROM_BYTES).and(NotForContentType::SSE));
    router
        .method_not_allowed_fallback(unsupported::method_not_allowed)
        .layer(axum::middleware::from_fn(refusal::with_body))
        .layer(compression)
        .layer(cors(gateway.clone()))
        .with_state(gateway.clone())
}

fn cors(gateway: Gateway) -> CorsLayer {
    let is_known = move |origin: &HeaderValue, _: &Parts| gateway.origins().knows(origin);
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(is_known))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([header::LINK, header::HeaderName::from_static("x-next-cursor")])
}
