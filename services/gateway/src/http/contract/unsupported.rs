//! Features of OpenCode that this service does not have. Their answer names the feature, so that a client can distinguish them from
//! an unknown path.

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

const FEATURES: &[Unsupported] = &[
    Unsupported { method: Some(Method::POST), path_begin: "/session/", path_end: "/share", message: SHARE },
    Unsupported { method: Some(Method::DELETE), path_begin: "/session/", path_end: "/share", message: SHARE },
    any("/mcp", "MCP servers are not supported"),
    any("/sync/", "sessions need no synchronization; every gateway has all of them"),
    any("/api/integration/", SIGN_IN),
    any("/api/credential/", SIGN_IN),
    any("/experimental/worktree", "worktrees are not supported; each session has its own files"),
    any("/experimental/workspace", "client workspaces are not supported"),
    any("/experimental/control-plane/", "sessions cannot be moved to another project"),
    any("/experimental/console/", "this server has no console"),
    any("/experimental/project/", "projects cannot be copied; fork a session instead"),
    Unsupported {
        method: Some(Method::POST),
        path_begin: "/experimental/session/",
        path_end: "",
        message: "background subtasks are not supported",
    },
];

/// Answers a request for an unknown path.
pub(crate) async fn not_found(request: Request) -> Response {
    let path = domain::text::head(request.uri().path(), 200);
    let why = feature(request.method(), path);
    missing(&why.map_or_else(|| format!("no such path: {path}"), str::to_owned))
}

/// Answers a request with a method that the path does not have. The header `allow` names its methods.
pub(in crate::http) async fn method_not_allowed(request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    if let Some(why) = feature(method, path) {
        return missing(why);
    }
    let message = format!("method {method} is not allowed at {}", domain::text::head(path, 200));
    let body = json!({"name": "MethodNotAllowedError", "data": {"message": message}});
    (StatusCode::METHOD_NOT_ALLOWED, Json(body)).into_response()
}

fn missing(message: &str) -> Response {
    let body = json!({"name": "NotFoundError", "data": {"message": message}});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
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
    use super::*;

    #[test]
    fn unsupported_features_differ_from_unknown_paths() {
        for (method, path, is_known) in [
            (Method::POST, "/mcp", true),
            (Method::POST, "/mcp/files/connect", true),
            (Method::DELETE, "/session/ses_1/share", true),
            (Method::GET, "/session/ses_1/share", false),
            (Method::GET, "/experimental/worktree", true),
            (Method::PUT, "/session", false),
            (Method::GET, "/", false),
        ] {
            assert_eq!(feature(&method, path).is_some(), is_known, "{method} {path}");
        }
    }
}
