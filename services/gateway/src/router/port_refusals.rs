//! The answers of the port itself, to requests that reach no route: of a connection beyond the limit, with too large a head, and with several hosts. The
//! shape depends on the protocol, the stable code does not.

use crate::errors::code_header::CODE;
use axum::{
    Json, Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use chassis::port::Routes;
use rpc::v1::ErrorCode;
use serde_json::json;

/// The retry delay for a client that found no place; seconds.
const AGAIN_S: &str = "5";

/// A refusal in the words of both protocols.
struct PortRefusal {
    code: ErrorCode,
    message: &'static str,
}

/// Adds the refusals of the port to the routes of the gateway.
pub(super) fn with_refusals(served: Router) -> Routes {
    Routes {
        served,
        full: Router::new().fallback(full),
        large_head: Router::new().fallback(large_head),
        several_hosts: Router::new().fallback(several_hosts),
    }
}

async fn full(headers: HeaderMap) -> Response {
    let refusal = PortRefusal {
        code: ErrorCode::ConnectionsTooMany,
        message: "this gateway has reached its connection limit; try again soon to reach another gateway",
    };
    let mut response = refusal.answer(&headers);
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static(AGAIN_S));
    response
}

async fn large_head(headers: HeaderMap) -> Response {
    let refusal = PortRefusal {
        code: ErrorCode::HeadTooLarge,
        message: "the head of the request is too large; send fewer or shorter headers, or a shorter query",
    };
    refusal.answer(&headers)
}

async fn several_hosts(headers: HeaderMap) -> Response {
    let refusal = PortRefusal {
        code: ErrorCode::HostInvalid,
        message: "the request has several Host headers; send one",
    };
    refusal.answer(&headers)
}

impl PortRefusal {
    fn answer(self, headers: &HeaderMap) -> Response {
        let Self { code, message } = self;
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let mut response: Response = if kind.starts_with("application/grpc") {
            rpc::status::error(code, message).into_http()
        } else {
            let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let body = json!({"name": "UnknownError", "data": {"message": message, "ref": code.as_str()}});
            (status, [(CODE, code.as_str())], Json(body)).into_response()
        };
        // For HTTP/1: a proxy in front may take what follows for a request of another client. HTTP/2 has no such header, and the port leaves it out there.
        response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_refusal_closes_the_connection_in_both_protocols() {
        for kind in ["application/json", "application/grpc", "application/grpc-web+proto"] {
            let kind = (header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
            let headers = HeaderMap::from_iter([kind]);
            let answers = [
                full(headers.clone()).await,
                large_head(headers.clone()).await,
                several_hosts(headers).await,
            ];
            assert!(answers.iter().all(|answer| answer.headers()[header::CONNECTION] == "close"));
        }
    }
}
