//! The body of a request, all of it, unless there is too much of it or it comes too slowly.

use super::error::Refused;
use axum::{
    body::Bytes,
    extract::Request,
    http::{StatusCode, header},
};
use futures::StreamExt as _;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Bytes of a body that is too large which are read all the same, and forgotten: most clients look for an answer when they have
/// sent everything, and one whose connection ends before that learns only that it broke.
const FORGOTTEN_BYTES_MAX: usize = 4 * rpc::MESSAGE_BYTES_MAX;

/// Reads a body of at most [`rpc::MESSAGE_BYTES_MAX`] `within` a time.
///
/// # Errors
/// 413, 408, or 400 when the connection broke.
pub(super) async fn body(request: Request, within: Duration) -> Result<Bytes, Refused> {
    let (until, announced) = (Instant::now() + within, announced(&request));
    // A client that asks first has sent nothing yet; of others it is no use to hear some.
    let asks = request.headers().contains_key(header::EXPECT);
    if announced > FORGOTTEN_BYTES_MAX || (asks && announced > rpc::MESSAGE_BYTES_MAX) {
        return Err(too_large());
    }
    let (mut whole, mut bytes) = (vec![], 0_usize);
    let mut pieces = request.into_body().into_data_stream();
    while bytes <= FORGOTTEN_BYTES_MAX {
        let piece = match timeout_at(until, pieces.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                return Err(Refused::Unreadable("Body", format!("the body cannot be read: {error}")));
            }
            Err(_) if bytes > rpc::MESSAGE_BYTES_MAX => break,
            Err(_) => {
                let message = format!("the body did not come within {} s", within.as_secs());
                return Err(Refused::Body(StatusCode::REQUEST_TIMEOUT, message));
            }
        };
        bytes += piece.len();
        if bytes <= rpc::MESSAGE_BYTES_MAX {
            whole.extend_from_slice(&piece);
        } else {
            whole = vec![];
        }
    }
    if bytes > rpc::MESSAGE_BYTES_MAX { Err(too_large()) } else { Ok(whole.into()) }
}

fn too_large() -> Refused {
    let message = format!("the body has more than {} bytes", rpc::MESSAGE_BYTES_MAX);
    Refused::Body(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// How long a body is, as far as its head says so.
fn announced(request: &Request) -> usize {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use axum::{body::Body, response::IntoResponse as _};
    use futures::stream;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    #[tokio::test]
    async fn half_a_body_is_not_waited_for() {
        let half = stream::iter([Ok::<_, axum::BoxError>("{\"ti")]).chain(stream::pending());
        let request = Request::new(Body::from_stream(half));
        let refused = body(request, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(refused.into_response().status(), StatusCode::REQUEST_TIMEOUT);
        // What is known to be too much is not called slow.
        let large = stream::iter(vec![Ok::<_, axum::BoxError>(vec![b'x'; rpc::MESSAGE_BYTES_MAX + 1])]);
        let request = Request::new(Body::from_stream(large.chain(stream::pending())));
        let refused = body(request, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(refused.into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
        let broken = stream::iter([Err::<&str, axum::BoxError>("reset".into())]);
        let refused =
            body(Request::new(Body::from_stream(broken)), Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(refused.into_response().status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn too_large_a_body_is_heard_out_and_not_kept() {
        let read = Arc::new(AtomicUsize::new(0));
        let megabytes = |count: usize| {
            let read = Arc::clone(&read);
            let pieces = stream::iter(0..count).map(move |_| {
                read.fetch_add(1, Ordering::Relaxed);
                Ok::<_, axum::BoxError>(Bytes::from_static(&[b'x'; 1 << 20]))
            });
            Request::new(Body::from_stream(pieces))
        };
        let within = Duration::from_secs(30);
        let most = rpc::MESSAGE_BYTES_MAX >> 20;
        assert_eq!(body(megabytes(most), within).await.unwrap().len(), rpc::MESSAGE_BYTES_MAX);
        // Whole, or as much as anybody sends by mistake.
        for (sent, heard) in [(most + 1, most + 1), (3 * most, 3 * most), (1 << 20, 4 * most + 1)] {
            read.store(0, Ordering::Relaxed);
            let refused = body(megabytes(sent), within).await.unwrap_err();
            assert_eq!(refused.into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(read.load(Ordering::Relaxed), heard, "of {sent}");
        }
        // A client that asks first is told at once, and one that would be broken off anyway.
        for (asks, length) in [(true, rpc::MESSAGE_BYTES_MAX + 1), (false, FORGOTTEN_BYTES_MAX + 1)] {
            read.store(0, Ordering::Relaxed);
            let mut announcing = megabytes(most + 1);
            if asks {
                announcing.headers_mut().insert(header::EXPECT, "100-continue".parse().unwrap());
            }
            announcing.headers_mut().insert(header::CONTENT_LENGTH, length.to_string().parse().unwrap());
            let refused = body(announcing, within).await.unwrap_err();
            assert_eq!(refused.into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(read.load(Ordering::Relaxed), 0);
        }
    }
}
