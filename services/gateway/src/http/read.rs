//! The body of a request, all of it, unless there is too much of it or it comes too slowly.

use super::error::Refused;
use axum::{
    body::Bytes,
    extract::{FromRequest as _, Request},
    http::StatusCode,
};
use std::time::Duration;

/// Reads a body, for which the router has set a bound, `within` a time.
///
/// # Errors
/// 413, 408, or 400 when the connection broke.
pub(super) async fn body(request: Request, within: Duration) -> Result<Bytes, Refused> {
    let Ok(read) = tokio::time::timeout(within, Bytes::from_request(request, &())).await else {
        let message = format!("the body did not come within {} s", within.as_secs());
        return Err(Refused::Body(StatusCode::REQUEST_TIMEOUT, message));
    };
    read.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("the body has more than {} bytes", rpc::MESSAGE_BYTES_MAX);
            Refused::Body(StatusCode::PAYLOAD_TOO_LARGE, message)
        }
        _ => Refused::Unreadable("Body", format!("the body cannot be read: {error}")),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use axum::{body::Body, response::IntoResponse as _};
    use futures::{StreamExt as _, stream};

    #[tokio::test]
    async fn half_a_body_is_not_waited_for() {
        let half = stream::iter([Ok::<_, axum::BoxError>("{\"ti")]).chain(stream::pending());
        let request = Request::new(Body::from_stream(half));
        let refused = body(request, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(refused.into_response().status(), StatusCode::REQUEST_TIMEOUT);
        let broken = stream::iter([Err::<&str, axum::BoxError>("reset".into())]);
        let refused =
            body(Request::new(Body::from_stream(broken)), Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(refused.into_response().status(), StatusCode::BAD_REQUEST);
    }
}
