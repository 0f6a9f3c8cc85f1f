//! Time limits for the bodies of calls. The readers of a body bound its size; a too large message of a call gets its code here.

use axum::{BoxError, body::Body, extract::Request};
use futures::{StreamExt as _, stream};
use rpc::{
    status::{code_of, error},
    v1::ErrorCode,
};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

/// Longest time for a body of one message: the largest message at 1 Mbit/s.
pub(crate) const BODY: Duration = Duration::from_secs(120);
/// Longest pause between two messages of a client's stream.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// A person types this stream and may pause for any time. Only the first message has a time limit.
const TYPED: &str = "/flotilla.v1.PtyService/AttachPty";
/// Streams that programs send: long, without pauses.
const STREAMED: [&str; 3] = [
    "/flotilla.v1.ProjectService/UploadBundle",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Ends the body of a gRPC call with DEADLINE_EXCEEDED `body_too_slow` if the client stalls.
pub(crate) fn with_deadline(request: Request) -> Request {
    let patience = match request.uri().path() {
        TYPED => return request,
        path if STREAMED.contains(&path) => Patience::Silence(SILENCE),
        _ => Patience::Until(Instant::now() + BODY),
    };
    request.map(|body| wait(body, patience))
}

/// Whether a call sends a stream of messages, which are not kept.
pub(crate) fn is_streamed(path: &str) -> bool {
    path == TYPED || STREAMED.contains(&path)
}

#[derive(Debug, Clone, Copy)]
enum Patience {
    /// The whole body must arrive by then.
    Until(Instant),
    /// The next piece must arrive within this time.
    Silence(Duration),
}

fn wait(body: Body, patience: Patience) -> Body {
    Body::from_stream(stream::unfold(Some(body.into_data_stream()), move |pieces| async move {
        let mut pieces = pieces?;
        let until = match patience {
            Patience::Until(until) => until,
            Patience::Silence(silence) => Instant::now() + silence,
        };
        match timeout_at(until, pieces.next()).await {
            Ok(next) => next.map(|piece| (piece.map_err(BoxError::from), Some(pieces))),
            Err(_) => Some((Err(too_slow().into()), None)),
        }
    }))
}

/// The status for a client that sends too slowly.
pub(crate) fn too_slow() -> Status {
    error(ErrorCode::BodyTooSlow, "the request body did not arrive in time")
}

/// The status of a message that is too large for its service, with the stable code. Tonic refuses such a message before our code sees it, with a status that
/// has no code. `None`: the status says something else.
pub(crate) fn too_large(status: &Status) -> Option<Status> {
    let is_too_large = status.code() == Code::OutOfRange && code_of(status).is_none();
    is_too_large.then(|| error(ErrorCode::BodyTooLarge, status.message()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use prost::Message as _;
    use std::collections::BTreeSet;

    const SHORT: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn a_stalled_body_ends_with_a_code() {
        for patience in [Patience::Silence(SHORT), Patience::Until(Instant::now() + SHORT)] {
            let half = stream::iter([Ok::<_, BoxError>("half")]).chain(stream::pending());
            let mut pieces = wait(Body::from_stream(half), patience).into_data_stream();
            assert_eq!(pieces.next().await.unwrap().unwrap(), "half");
            let status = Status::from_error(pieces.next().await.unwrap().unwrap_err().into());
            assert_eq!(code_of(&status).as_deref(), Some("body_too_slow"), "{status:?}");
            assert!(pieces.next().await.is_none());
        }
    }

    #[tokio::test]
    async fn a_steady_stream_is_bounded_only_as_a_single_message() {
        let drip = || {
            let slow = stream::iter(0..8).then(|_| async {
                tokio::time::sleep(SHORT / 2).await;
                Ok::<_, BoxError>("x")
            });
            Body::from_stream(slow)
        };
        let whole = axum::body::to_bytes(wait(drip(), Patience::Silence(20 * SHORT)), 100).await;
        assert_eq!(whole.unwrap().len(), 8);
        let until = Patience::Until(Instant::now() + SHORT);
        axum::body::to_bytes(wait(drip(), until), 100).await.unwrap_err();
    }

    #[test]
    fn a_status_of_tonic_for_a_too_large_message_gets_a_code() {
        let refused = too_large(&Status::out_of_range("too large: 5 bytes")).unwrap();
        assert_eq!(code_of(&refused).as_deref(), Some("body_too_large"));
        assert_eq!((refused.code(), refused.message()), (Code::OutOfRange, "too large: 5 bytes"));
        for other in [refused, error(ErrorCode::CursorTooOld, "old"), Status::internal("other")] {
            assert!(too_large(&other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn every_client_stream_has_a_time_limit() {
        let described = prost_types::FileDescriptorSet::decode(rpc::DESCRIPTORS).unwrap();
        let mut streaming = BTreeSet::new();
        for file in &described.file {
            // The gateway does not serve the services of the sandbox and the broker.
            let services = file.service.iter().filter(|it| {
                !matches!(it.name(), "SandboxService" | "TerminalService" | "BrokerService" | "ForgeService")
            });
            for service in services {
                let methods = service.method.iter().filter(|method| method.client_streaming());
                streaming.extend(
                    methods.map(|it| format!("/{}.{}/{}", file.package(), service.name(), it.name())),
                );
            }
        }
        let known = STREAMED.into_iter().chain([TYPED]).filter(|path| path.starts_with("/flotilla."));
        assert_eq!(streaming, known.map(ToOwned::to_owned).collect());
    }
}
