//! What is not served: features that OpenCode has and this service has not are told from what nobody knows. Clients take
//! such an answer for a server without the feature.

use axum::{
    Json,
    extract::Request,
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use serde_json::json;

/// Features of OpenCode that there are none of here: the method (empty: any), the beginning and the end of
/// their paths, and why.
const FEATURES: &[(&str, &str, &str, &str)] = &[
    ("POST", "/session/", "/share", "sessions cannot be shared here"),
    ("DELETE", "/session/", "/share", "sessions cannot be shared here"),
    ("", "/mcp", "", "there are no MCP servers here"),
    ("", "/sync/", "", "sessions are not moved by clients: whichever gateway is asked has all of them"),
    ("", "/api/integration/", "", "keys of providers are the operator's: nobody signs in to one here"),
    ("", "/api/credential/", "", "keys of providers are the operator's: nobody signs in to one here"),
    ("", "/experimental/worktree", "", "there are no worktrees here: each session has files of its own"),
    ("", "/experimental/workspace", "", "there are no workspaces of clients here"),
    ("", "/experimental/control-plane/", "", "sessions stay with their project"),
    ("", "/experimental/console/", "", "there is no console here"),
    ("", "/experimental/project/", "", "projects cannot be copied here: fork a session"),
    ("POST", "/experimental/session/", "", "subtasks do not run in the background here"),
];

/// What is said at a path that nothing is at.
pub(crate) async fn unknown(request: Request) -> Response {
    let path = domain::text::head(request.uri().path(), 200);
    let why = feature(request.method(), path);
    not_found(&why.map_or_else(|| format!("there is nothing at {path}"), str::to_owned))
}

/// What is said at a path with a method that it has not. Which it has is in the header `allow`.
pub(super) async fn not_allowed(request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    if let Some(why) = feature(method, path) {
        return not_found(why);
    }
    let message = format!("{method} is no method of {}", domain::text::head(path, 200));
    let body = json!({"name": "MethodNotAllowedError", "data": {"message": message}});
    (StatusCode::METHOD_NOT_ALLOWED, Json(body)).into_response()
}

fn not_found(message: &str) -> Response {
    let body = json!({"name": "NotFoundError", "data": {"message": message}});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}

/// Why there is no such feature, if OpenCode has it there.
fn feature(method: &Method, path: &str) -> Option<&'static str> {
    let fits = |(of, begin, end, _): &&(&str, &str, &str, &str)| {
        (of.is_empty() || *of == method.as_str()) && path.starts_with(begin) && path.ends_with(end)
    };
    FEATURES.iter().find(fits).map(|(.., why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_are_not_here_are_told_from_nonsense() {
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
