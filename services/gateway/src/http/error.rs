//! Refusals as OpenCode's clients know them: which shape an error has, and whom it names, depends on the route. Our own stable
//! code is in the header `x-flotilla-code`.

use axum::{
    Json,
    extract::{MatchedPath, RawPathParams, Request},
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::sync::Arc;
use tonic::{Code, Status};

/// Names our stable code.
const CODE: HeaderName = HeaderName::from_static("x-flotilla-code");

/// Begins the paths of OpenCode's newer API.
const NEWER: &str = "/api/";

/// Our code for a reply to what somebody answered already.
const RESOLVED: &str = "already_resolved";

/// Why a request is refused.
#[derive(Debug)]
pub(super) enum Refused {
    /// By whatever stands behind all ways in.
    Status(Status),
    /// The request cannot be read; which half of it, and why.
    Unreadable(&'static str, String),
    /// The body of the request is too large, or does not come.
    Body(StatusCode, String),
    /// Who calls is not known.
    Unknown,
}

pub(super) type Result<T> = std::result::Result<T, Refused>;

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        if status.code() == Code::Unauthenticated { Self::Unknown } else { Self::Status(status) }
    }
}

impl From<store::error::Error> for Refused {
    fn from(error: store::error::Error) -> Self {
        crate::grpc::from_store(error).into()
    }
}

impl IntoResponse for Refused {
    /// Without a body, which [`shaped`] gives it.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        let code = match &self {
            Self::Unknown => {
                let challenge = HeaderValue::from_static("Basic realm=\"Secure Area\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
                None
            }
            Self::Unreadable(..) | Self::Body(..) => None,
            Self::Status(status) => {
                if let Some(wait) = rpc::status::retry_after_of(status) {
                    let seconds = wait.as_millis().div_ceil(1_000) as u64;
                    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
                }
                rpc::status::code_of(status)
            }
        };
        if let Some(code) = code.and_then(|code| HeaderValue::from_str(&code).ok()) {
            response.headers_mut().insert(CODE, code);
        }
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

impl Refused {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Unreadable(..) => StatusCode::BAD_REQUEST,
            Self::Body(status, _) => *status,
            Self::Status(status) => match status.code() {
                // To OpenCode, a request that is answered is gone.
                Code::NotFound => StatusCode::NOT_FOUND,
                _ if rpc::status::code_of(status).as_deref() == Some(RESOLVED) => StatusCode::NOT_FOUND,
                Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
                Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
                Code::PermissionDenied => StatusCode::FORBIDDEN,
                Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
                Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }

    /// What is said at a route; of the older API, nothing to those whom we do not know.
    fn told(&self, route: &Route) -> Option<Value> {
        let (message, kind, code) = match self {
            Self::Unknown if route.is_newer() => {
                return Some(json!({"_tag": "UnauthorizedError", "message": "Authentication required"}));
            }
            Self::Unknown => return None,
            Self::Unreadable(kind, message) => (message.as_str(), Some(*kind), None),
            Self::Body(_, message) => (message.as_str(), Some("Body"), None),
            Self::Status(status) => (status.message(), None, rpc::status::code_of(status)),
        };
        let code = code.as_deref().unwrap_or_default();
        let tagged = |tag: &str, id: &str, named: &str| json!({"_tag": tag, id: named, "message": message});
        // OpenCode takes any body; ours refuses one as it would refuse what is in it.
        let shape = if let Self::Body(..) = self { StatusCode::BAD_REQUEST } else { self.status() };
        Some(match shape {
            StatusCode::BAD_REQUEST if route.is_newer() && code == "cursor_invalid" => {
                json!({"_tag": "InvalidCursorError", "message": message})
            }
            StatusCode::BAD_REQUEST
                if ["workspace_missing", "patch_refused", "file_not_permitted"].contains(&code) =>
            {
                let reason = if code == "workspace_missing" { "non-git" } else { "not-clean" };
                json!({"name": "VcsApplyError", "data": {"message": message, "reason": reason}})
            }
            StatusCode::BAD_REQUEST if route.is_plain() => {
                json!({"name": "BadRequest", "data": {"message": message, "kind": kind.unwrap_or("Query")}})
            }
            StatusCode::BAD_REQUEST => {
                let mut body = json!({"_tag": "InvalidRequestError", "message": message});
                if let Some(kind) = kind {
                    body["kind"] = kind.into();
                }
                body
            }
            StatusCode::CONFLICT if code == "session_busy" => {
                tagged("SessionBusyError", "sessionID", &route.first)
            }
            StatusCode::CONFLICT => json!({"_tag": "ConflictError", "message": message}),
            StatusCode::FORBIDDEN => match code {
                // No page sees the body of a connection that is refused.
                "pty_forbidden" if route.connects() => json!({"_tag": "Forbidden"}),
                "pty_forbidden" => json!({"_tag": "PtyForbiddenError", "message": message}),
                _ => json!({"_tag": "ForbiddenError", "message": message}),
            },
            StatusCode::NOT_FOUND => match code {
                "pty_not_found" if !route.connects() => tagged("PtyNotFoundError", "ptyID", &route.last),
                "project_not_found" => tagged("ProjectNotFoundError", "projectID", &route.last),
                "session_not_found" if route.is_newer() => {
                    tagged("SessionNotFoundError", "sessionID", &route.first)
                }
                "message_not_found" if route.is_newer() => {
                    let mut body = tagged("MessageNotFoundError", "sessionID", &route.first);
                    body["messageID"] = route.last.as_str().into();
                    body
                }
                _ if route.path.contains("/permission") => {
                    tagged("PermissionNotFoundError", "requestID", &route.last)
                }
                _ if route.path.contains("/question") => {
                    tagged("QuestionNotFoundError", "requestID", &route.last)
                }
                _ => json!({"name": "NotFoundError", "data": {"message": message}}),
            },
            StatusCode::SERVICE_UNAVAILABLE if route.is_newer() => {
                json!({"_tag": "ServiceUnavailableError", "message": message})
            }
            _ if route.is_newer() => json!({"_tag": "UnknownError", "message": message}),
            _ => json!({"name": "UnknownError", "data": {"message": message}}),
        })
    }
}

/// Where something is refused. The first name in a path is that of a session, where it has more than one; the last one is that
/// of what is missing.
struct Route {
    method: Method,
    path: String,
    first: String,
    last: String,
}

impl Route {
    fn is_newer(&self) -> bool {
        self.path.starts_with(NEWER)
    }

    /// Whether it is the connection to a terminal.
    fn connects(&self) -> bool {
        self.path.ends_with("/connect")
    }

    /// Whether OpenCode declares the older shape of bad requests: for what only reads, except below a session, and for most of what
    /// terminal clients are told.
    fn is_plain(&self) -> bool {
        if let Some(order) = self.path.strip_prefix("/tui/") {
            return !["append-prompt", "execute-command", "publish", "select-session"].contains(&order);
        }
        if self.path == "/experimental/tool" {
            return false;
        }
        let is_below_session = self.path.starts_with("/session/") && !self.path.ends_with("/diff");
        self.method == Method::GET && !self.is_newer() && !is_below_session
    }
}

/// Gives refusals their bodies.
pub(super) async fn shaped(
    path: MatchedPath,
    names: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let name = |it: Option<(&str, &str)>| it.map_or("", |(_, name)| name).to_owned();
    let (first, last) = (name(names.iter().next()), name(names.iter().last()));
    let route = Route { method: request.method().clone(), path: path.as_str().to_owned(), first, last };
    let mut response = next.run(request).await;
    let refused = response.extensions_mut().remove::<Arc<Refused>>();
    match refused.and_then(|refused| refused.told(&route)) {
        Some(body) => (response.into_parts().0, Json(body)).into_response(),
        None => response,
    }
}
