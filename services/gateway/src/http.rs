//! OpenCode's HTTP API on the same port: a translation. Whoever calls is found out by the same keys, what changes anything
//! goes through the gRPC services' own functions, and what is read comes from the same rows.
// Continues in `http::table`, which lists what is served, and in `http::prompt`, for a prompt.

pub(crate) mod absent;
mod caller;
mod catalogue;
mod document;
mod edits;
mod error;
mod files;
mod frame;
mod input;
mod older;
mod operation;
mod operator;
mod place;
mod projects;
mod prompt;
mod pty;
mod read;
mod requests;
mod sessions;
mod shape;
mod skills;
mod stream;
mod table;
mod tui;
mod v2;
mod vcs;

use crate::state::State;
use axum::{
    Router,
    http::{HeaderValue, Method, header, request::Parts},
};
use tower_http::{
    compression::{
        CompressionLayer,
        predicate::{NotForContentType, Predicate as _, SizeAbove},
    },
    cors::{AllowOrigin, CorsLayer},
};

/// Answers that are worth compressing; bytes, as in OpenCode.
const COMPRESSED_FROM_BYTES: u64 = 1_024;

/// The routes, with what all of them share.
pub(crate) fn routes(state: &State) -> Router {
    let router = table::operations().into_iter().fold(Router::new(), |all, operation| operation.serve(all));
    router
        .method_not_allowed_fallback(absent::not_allowed)
        .layer(axum::middleware::from_fn(error::shaped))
        .layer(
            CompressionLayer::new()
                .compress_when(SizeAbove::new(COMPRESSED_FROM_BYTES).and(NotForContentType::SSE)),
        )
        .layer(cors())
        .with_state(state.clone())
}

/// Browsers may call from where OpenCode's own pages come from, and from pages on the user's machine.
fn is_known(origin: &HeaderValue) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let (scheme, rest) = origin.split_once("://").unwrap_or_default();
    let host = rest.split(':').next().unwrap_or_default();
    match scheme {
        "http" => ["localhost", "127.0.0.1", "tauri.localhost"].contains(&host),
        "https" => host == "tauri.localhost" || host.ends_with(".opencode.ai"),
        "tauri" => host == "localhost",
        "oc" => host == "renderer",
        _ => false,
    }
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(|origin: &HeaderValue, _: &Parts| is_known(origin)))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(tower_http::cors::AllowHeaders::mirror_request())
        .expose_headers([header::LINK, header::HeaderName::from_static("x-next-cursor")])
}
