//! Refuses what a page of another site may not do.

use crate::{app::gateway::Gateway, errors::error::Error, http::refusal::Result};
use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};

/// Serves the request unless it is one of a foreign page.
pub(in crate::http) async fn guard(
    State(gateway): State<Gateway>,
    request: Request,
    next: Next,
) -> Result<Response> {
    if gateway.origins().is_foreign(request.uri(), request.headers()) {
        return Err(Error::OriginForbidden.into());
    }
    Ok(next.run(request).await)
}
