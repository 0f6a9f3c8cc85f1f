//! Features of OpenCode that this service does not have. Their answer names the feature, so that a client can distinguish them from
//! an unknown path.

use crate::http::refusal::V2;
use axum::{
    Json,
    extract::Request,
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use serde_json::json;

/// A feature that is not supported, by its paths.
struct Unsupported {
    /// `None`: any.
    method: Option<Method>,
    path_begin: &'static str,
    path_end: &'static str,
    message: &'static str,
}

const fn any(path_begin: &'static str, message: &'static str) -> Unsupported {
    Unsupported { method: None, path_begin, path_end: "", message }
}

const SHARE: &str = "sharing sessions is not supported";
const SIGN_IN: &str = "provider keys are managed by the operator; sign-in is not available on this server";

const COPY: &str = "projects cannot be copied; fork a session instead";

const FEATURES: &[Unsupported] = &[
    Unsupported { method: Some(Method::POST), path_begin: "/session/", path_end: "/share", message: SHARE },
    Unsupported { method: Some(Method::DELETE), path_begin: "/session/", path_end: "/share", message: SHARE },
    any("/mcp", "MCP servers are not supported"),
    any("/sync/", "sessions need no synchronization; every gateway has all of them"),
    any("/api/integration/", SIGN_IN),
    any("/api/credential/", SIGN_IN),
    Unsupported {
        method: Some(Method::POST),
        path_begin: "/api/session/",
        path_end: "/permission",
        message: "clients cannot ask for permission; only tool calls do",
    },
    any("/experimental/workspace", "client workspaces are not supported"),
    any(MOVE, "sessions cannot be moved"),
    any("/experimental/control-plane/", "this server has no control plane"),
    any("/experimental/console/", "this server has no console"),
    Unsupported { method: None, path_begin: "/experimental/project/", path_end: "/copy", message: COPY },
    Unsupported {
        method: None,
        path_begin: "/experimental/project/",
        path_end: "/generate-name",
        message: COPY,
    },
    Unsupported {
        method: Some(Method::POST),
        path_begin: "/experimental/session/",
        path_end: "",
        message: "background subtasks are not supported",
    },
];

/// The path that moves a session to another directory.
const MOVE: &str = "/experimental/control-plane/move-session";
/// The start of the paths of an MCP server.
const MCP: &str = "/mcp/";

/// Answers a request for an unknown path.
pub(crate) async fn not_found(request: Request) -> Response {
    let path = domain::text::head(request.uri().path(), 200);
    match feature(request.method(), path) {
        Some(why) => unsupported(path, why),
        None => refused(path, StatusCode::NOT_FOUND, "NotFoundError", &format!("no such path: {path}")),
    }
}

/// Answers a request with a method that the path does not have. The header `allow` names its methods.
pub(in crate::http) async fn method_not_allowed(request: Request) -> Response {
    let (method, path) = (request.method(), domain::text::head(request.uri().path(), 200));
    match feature(method, path) {
        Some(why) => unsupported(path, why),
        None => {
            let message = format!("method {method} is not allowed at {path}");
            refused(path, StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowedError", &message)
        }
    }
}

/// A refusal in the shape that OpenCode declares for such a path.
fn unsupported(path: &str, why: &str) -> Response {
    if let Some(rest) = path.strip_prefix(MCP) {
        let name = rest.split('/').next().unwrap_or_default();
        let body = json!({"_tag": "McpServerNotFoundError", "name": name, "message": why});
        return (StatusCode::NOT_FOUND, Json(body)).into_response();
    }
    if path == MOVE {
        let body = json!({"name": "MoveSessionError", "data": {"message": why}});
        return (StatusCode::BAD_REQUEST, Json(body)).into_response();
    }
    if path.starts_with(V2) || path == "/mcp" {
        let body = json!({"_tag": "InvalidRequestError", "message": why});
        return (StatusCode::BAD_REQUEST, Json(body)).into_response();
    }
    refused(path, StatusCode::NOT_FOUND, "NotFoundError", why)
}

fn refused(path: &str, status: StatusCode, name: &str, message: &str) -> Response {
    let body = if path.starts_with(V2) {
        json!({"_tag": name, "message": message})
    } else {
        json!({"name": name, "data": {"message": message}})
    };
    (status, Json(body)).into_response()
}

/// The message for the OpenCode feature at this path.
fn feature(method: &Method, path: &str) -> Option<&'static str> {
    let fits = |feature: &&Unsupported| {
        feature.method.as_ref().is_none_or(|it| it == method)
            && path.starts_with(feature.path_begin)
            && path.ends_with(feature.path_end)
    };
    FEATURES.iter().find(fits).map(|feature| feature.message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use axum::body::{Body, to_bytes};

    #[tokio::test]
    async fn refusals_have_the_shapes_that_opencode_declares() {
        for (method, path, status, name) in [
            (Method::POST, "/mcp", 400, "_tag InvalidRequestError"),
            (Method::POST, "/mcp/files/connect", 404, "_tag McpServerNotFoundError"),
            (Method::DELETE, "/mcp/files/auth", 404, "_tag McpServerNotFoundError"),
            (Method::POST, "/api/session/ses_1/permission", 400, "_tag InvalidRequestError"),
            (Method::GET, "/api/integration/x", 400, "_tag InvalidRequestError"),
            (Method::POST, MOVE, 400, "name MoveSessionError"),
            (Method::GET, "/api/none", 404, "_tag NotFoundError"),
            (Method::GET, "/none", 404, "name NotFoundError"),
            (Method::POST, "/session/ses_1/share", 404, "name NotFoundError"),
        ] {
            let request = Request::builder().method(method.clone()).uri(path).body(Body::empty()).unwrap();
            let response = not_found(request).await;
            assert_eq!(response.status().as_u16(), status, "{method} {path}");
            let body = to_bytes(response.into_body(), 10_000).await.unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let (member, want) = name.split_once(' ').unwrap();
            assert_eq!(body[member], want, "{method} {path}: {body}");
            assert!(body["message"].is_string() || body["data"]["message"].is_string(), "{body}");
        }
    }

    #[test]
    fn unsupported_features_differ_from_unknown_paths() {
        for (method, path, is_known) in [
            (Method::POST, "/mcp", true),
            (Method::POST, "/mcp/files/connect", true),
            (Method::DELETE, "/session/ses_1/share", true),
            (Method::GET, "/session/ses_1/share", false),
            (Method::GET, "/experimental/workspace/x", true),
            (Method::PUT, "/experimental/worktree", false),
            (Method::PUT, "/session", false),
            (Method::POST, "/api/session/ses_1/permission", true),
            (Method::POST, "/api/integration/x/connect/key", true),
            (Method::POST, "/experimental/project/prj_1/copy", true),
            (Method::POST, "/experimental/project/prj_1/copy/generate-name", true),
            (Method::GET, "/experimental/project/prj_1/copy/refresh", false),
            (Method::GET, "/", false),
        ] {
            assert_eq!(feature(&method, path).is_some(), is_known, "{method} {path}");
        }
    }
}
