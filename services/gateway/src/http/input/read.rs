//! Reads the body of a request within its limits of size and time.

use crate::{
    app::gateway::Gateway,
    http::refusal::{BodyProblem, Refusal, RequestPart},
    memory::{room::SMALL_BODY_BYTES, taken_room::TakenRoom},
};
use axum::{
    body::Bytes,
    extract::Request,
    http::{HeaderMap, header},
};
use domain::ids::TenantId;
use futures::StreamExt as _;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Bytes of a too large body that are read and dropped. Most clients read the response only after they have sent everything. If
/// the connection ends before that, they see a broken connection instead of the reason.
const DROPPED_BYTES_MAX: usize = 4 * rpc::MESSAGE_BYTES_MAX;

/// The tenant whose room a body takes. The extractor of the caller notes it for that of the body.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct BodyOwner(pub(in crate::http) TenantId);

/// Reads a body of JSON. A missing body needs no content type.
///
/// A page of another site can send a body to any address with the person's password, but declare it as JSON only after the
/// browser has asked this server.
///
/// A large body waits for its turn once it is here: until then it takes no processor.
///
/// # Errors
/// 415, 429, and those of [`body`].
pub(in crate::http) async fn json(
    gateway: &Gateway,
    request: Request,
    within: Duration,
) -> Result<Bytes, Refusal> {
    let owner = request.extensions().get::<BodyOwner>().map(|owner| owner.0);
    let taken = TakenRoom::of(request.extensions());
    let take_room = async |bytes| gateway.take_body_room(owner, bytes, &taken).await.map_err(Refusal::from);
    let bytes = declared_json(request, within, take_room).await?;
    if bytes.len() > SMALL_BODY_BYTES {
        gateway.take_turn(owner, &taken).await?;
    }
    Ok(bytes)
}

async fn declared_json(
    request: Request,
    within: Duration,
    take_room: impl AsyncFnOnce(usize) -> Result<(), Refusal>,
) -> Result<Bytes, Refusal> {
    let is_json = is_json(request.headers());
    let bytes = body(request, within, take_room).await?;
    if is_json || bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(bytes);
    }
    let message = "the body must be JSON; send the header `content-type: application/json`".to_owned();
    Err(Refusal::Body { problem: BodyProblem::NotJson, message })
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// Reads a body of at most [`rpc::MESSAGE_BYTES_MAX`] `within` a time. A large one is read once `take_room` has taken room for so many bytes.
///
/// # Errors
/// 413, 408, or 400 if the connection broke; those of `take_room`.
async fn body(
    request: Request,
    within: Duration,
    take_room: impl AsyncFnOnce(usize) -> Result<(), Refusal>,
) -> Result<Bytes, Refusal> {
    let mut take_room = Some(take_room);
    let (until, announced) = (Instant::now() + within, announced(&request));
    // A client that waits for `100 Continue` has sent nothing yet. A body beyond the dropped bytes would be cut off anyway.
    let waits = request.headers().contains_key(header::EXPECT);
    if announced > DROPPED_BYTES_MAX || (waits && announced > rpc::MESSAGE_BYTES_MAX) {
        return Err(too_large());
    }
    let (mut whole, mut bytes) = (vec![], 0_usize);
    let mut pieces = request.into_body().into_data_stream();
    while bytes <= DROPPED_BYTES_MAX {
        let piece = match timeout_at(until, pieces.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                return Err(RequestPart::Body.unreadable(format!("cannot read the body: {error}")));
            }
            Err(_) if bytes > rpc::MESSAGE_BYTES_MAX => break,
            Err(_) => {
                let message = format!("the body did not arrive within {} s", within.as_secs());
                return Err(Refusal::Body { problem: BodyProblem::TooSlow, message });
            }
        };
        bytes += piece.len();
        if bytes > SMALL_BODY_BYTES
            && let Some(take_room) = take_room.take()
        {
            let length = if announced > 0 { announced } else { rpc::MESSAGE_BYTES_MAX };
            take_room(length.min(rpc::MESSAGE_BYTES_MAX)).await?;
        }
        if bytes <= rpc::MESSAGE_BYTES_MAX {
            whole.extend_from_slice(&piece);
        } else {
            whole = vec![];
        }
    }
    if bytes > rpc::MESSAGE_BYTES_MAX { Err(too_large()) } else { Ok(whole.into()) }
}

fn too_large() -> Refusal {
    let message = format!("the body is larger than {} bytes", rpc::MESSAGE_BYTES_MAX);
    Refusal::Body { problem: BodyProblem::TooLarge, message }
}

/// The length of the body, if the head declares it.
fn announced(request: &Request) -> usize {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use axum::{
        body::Body,
        http::{HeaderValue, StatusCode},
        response::IntoResponse as _,
    };
    use futures::stream;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    async fn free(_: usize) -> Result<(), Refusal> {
        Ok(())
    }

    #[tokio::test]
    async fn only_a_large_body_takes_room() {
        let read = async |bytes: usize, announces: bool| {
            let mut request = Request::new(Body::from(vec![b'x'; bytes]));
            if announces {
                request.headers_mut().insert(header::CONTENT_LENGTH, bytes.to_string().parse().unwrap());
            }
            let mut taken = None;
            let take = async |bytes| {
                taken = Some(bytes);
                Ok(())
            };
            body(request, Duration::from_secs(5), take).await.unwrap();
            taken
        };
        assert_eq!(read(SMALL_BODY_BYTES, true).await, None);
        assert_eq!(read(SMALL_BODY_BYTES + 1, true).await, Some(SMALL_BODY_BYTES + 1));
        assert_eq!(read(SMALL_BODY_BYTES + 1, false).await, Some(rpc::MESSAGE_BYTES_MAX));
        let full = async |_| Err(Refusal::from(crate::errors::error::Error::RequestsTooMany));
        let request = Request::new(Body::from(vec![b'x'; SMALL_BODY_BYTES + 1]));
        let refused = body(request, Duration::from_secs(5), full).await.unwrap_err();
        assert_eq!(refused.into_response().status(), StatusCode::TOO_MANY_REQUESTS);
    }

    #[tokio::test]
    async fn a_body_must_be_declared_as_json() {
        for (kind, text, is_read) in [
            (Some("application/json"), "{}", true),
            (Some("Application/JSON; charset=utf-8"), "{}", true),
            (None, "", true),
            (Some("text/plain"), " \n", true),
            (None, "{}", false),
            (Some("text/plain"), "{}", false),
            (Some("text/plain;application/json"), "{}", false),
            (Some("application/x-www-form-urlencoded"), "{}", false),
            (Some("multipart/form-data; boundary=x"), "{}", false),
        ] {
            let mut request = Request::new(Body::from(text));
            if let Some(kind) = kind {
                request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            let status = match declared_json(request, Duration::from_secs(5), free).await {
                Ok(read) => {
                    assert_eq!(read, text);
                    StatusCode::OK
                }
                Err(refused) => refused.into_response().status(),
            };
            let want = if is_read { StatusCode::OK } else { StatusCode::UNSUPPORTED_MEDIA_TYPE };
            assert_eq!(status, want, "{kind:?} {text:?}");
        }
    }

    #[tokio::test]
    async fn a_stalled_body_times_out() {
        let half = stream::iter([Ok::<_, axum::BoxError>("{\"ti")]).chain(stream::pending());
        let request = Request::new(Body::from_stream(half));
        let refused = body(request, Duration::from_millis(50), free).await.unwrap_err();
        assert_eq!(refused.into_response().status(), StatusCode::REQUEST_TIMEOUT);
        // A body that is already too large is not reported as slow.
        let large = stream::iter(vec![Ok::<_, axum::BoxError>(vec![b'x'; rpc::MESSAGE_BYTES_MAX + 1])]);
        let request = Request::new(Body::from_stream(large.chain(stream::pending())));
        let refused = body(request, Duration::from_millis(50), free).await.unwrap_err();
        assert_eq!(refused.into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
        let broken = stream::iter([Err::<&str, axum::BoxError>("reset".into())]);
        let refused =
            body(Request::new(Body::from_stream(broken)), Duration::from_secs(5), free).await.unwrap_err();
        assert_eq!(refused.into_response().status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn a_too_large_body_is_read_and_dropped() {
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
        assert_eq!(body(megabytes(most), within, free).await.unwrap().len(), rpc::MESSAGE_BYTES_MAX);
        // The whole body, up to a limit.
        for (sent, received) in [(most + 1, most + 1), (3 * most, 3 * most), (1 << 20, 4 * most + 1)] {
            read.store(0, Ordering::Relaxed);
            let refused = body(megabytes(sent), within, free).await.unwrap_err();
            assert_eq!(refused.into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(read.load(Ordering::Relaxed), received, "of {sent}");
        }
        // Clients that wait for `100 Continue`, and those that would be cut off anyway, get the answer at once.
        for (waits, length) in [(true, rpc::MESSAGE_BYTES_MAX + 1), (false, DROPPED_BYTES_MAX + 1)] {
            read.store(0, Ordering::Relaxed);
            let mut announcing = megabytes(most + 1);
            if waits {
                announcing.headers_mut().insert(header::EXPECT, "100-continue".parse().unwrap());
            }
            announcing.headers_mut().insert(header::CONTENT_LENGTH, length.to_string().parse().unwrap());
            let refused = body(announcing, within, free).await.unwrap_err();
            assert_eq!(refused.into_response().status(), StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(read.load(Ordering::Relaxed), 0);
        }
    }
}
