//! Refusals in the form that OpenCode's clients expect. The shape of an error, and the object that it names, depend on the route. The
//! stable code is in the header `x-flotilla-code`.

use crate::errors::{code_header::CODE, entity::Entity, error::Error, invalid::Invalid};
use axum::{
    Json,
    extract::{MatchedPath, RawPathParams, Request, rejection::RawPathParamsRejection},
    http::{HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use rpc::v1::{ErrorCode, ErrorKind};
use serde_json::{Value, json};
use std::sync::Arc;

/// The start of the paths of OpenCode's newer API.
pub(in crate::http) const V2: &str = "/api/";

/// Why a request is refused.
#[derive(Debug)]
pub(in crate::http) enum Refusal {
    /// A use case refused it.
    App(Error),
    /// The request cannot be read.
    Unreadable { part: RequestPart, message: String },
    /// The body is not accepted.
    Body { problem: BodyProblem, message: String },
    /// The caller has no valid key.
    Unauthenticated,
    /// No command is pending for a terminal client.
    NoCommand,
}

/// Why a body is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum BodyProblem {
    TooLarge,
    TooSlow,
    /// It is not declared as JSON.
    NotJson,
}

impl BodyProblem {
    fn code(self) -> ErrorCode {
        match self {
            Self::TooLarge => ErrorCode::BodyTooLarge,
            Self::TooSlow => ErrorCode::BodyTooSlow,
            Self::NotJson => ErrorCode::ContentTypeInvalid,
        }
    }
}

/// The part of a request that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum RequestPart {
    Query,
    Body,
    Headers,
}

impl RequestPart {
    pub(in crate::http) fn unreadable(self, message: impl Into<String>) -> Refusal {
        Refusal::Unreadable { part: self, message: message.into() }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Query => "Query",
            Self::Body => "Body",
            Self::Headers => "Headers",
        }
    }
}

pub(in crate::http) type Result<T> = std::result::Result<T, Refusal>;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        if error.kind() == ErrorKind::Unauthenticated { Self::Unauthenticated } else { Self::App(error) }
    }
}

impl IntoResponse for Refusal {
    /// A response without a body; [`with_body`] adds that.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        let headers = response.headers_mut();
        match &self {
            Self::Unauthenticated => {
                let challenge = HeaderValue::from_static("Basic realm=\"Secure Area\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            Self::App(error) => {
                if let Error::TooManyAttempts { retry_after } = error {
                    let seconds = retry_after.as_nanos().div_ceil(1_000_000_000).max(1) as u64;
                    headers.insert(header::RETRY_AFTER, seconds.into());
                }
                if let Ok(code) = HeaderValue::from_str(error.code()) {
                    headers.insert(CODE, code);
                }
            }
            Self::Body { problem, .. } => {
                headers.insert(CODE, HeaderValue::from_static(problem.code().as_str()));
            }
            Self::Unreadable { .. } | Self::NoCommand => {}
        }
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Unreadable { .. } => StatusCode::BAD_REQUEST,
            Self::Body { problem, .. } => status_of(problem.code().http()),
            Self::NoCommand => StatusCode::SERVICE_UNAVAILABLE,
            Self::App(Error::AlreadyResolved { .. }) => status_of(ErrorCode::AlreadyResolved.http()),
            Self::App(error) => status_of(error.kind().http()),
        }
    }

    /// The body at a route. The older API sends no body to a caller without a valid key.
    fn body(&self, route: &Route) -> Option<Value> {
        match self {
            Self::Unauthenticated if route.is_v2() => {
                Some(json!({"_tag": "UnauthorizedError", "message": "Authentication required"}))
            }
            Self::Unauthenticated => None,
            Self::Unreadable { part, message } => Some(bad_request(route, Some(*part), message)),
            // OpenCode accepts bodies of any size, so it has no shape for this: the refusal uses the shape for an
            // unreadable body.
            Self::Body { message, .. } => Some(bad_request(route, Some(RequestPart::Body), message)),
            Self::NoCommand => {
                Some(other(route, StatusCode::SERVICE_UNAVAILABLE, "no command is pending; poll again"))
            }
            Self::App(error) => Some(app_error(route, error, self.status())),
        }
    }
}

fn status_of(http: u16) -> StatusCode {
    StatusCode::from_u16(http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn app_error(route: &Route, error: &Error, status: StatusCode) -> Value {
    let message = &error.to_string();
    match status {
        StatusCode::BAD_REQUEST => invalid(route, error, message),
        StatusCode::CONFLICT if *error == Error::Busy => {
            tagged("SessionBusyError", message, "sessionID", &route.first)
        }
        StatusCode::CONFLICT => json!({"_tag": "ConflictError", "message": message}),
        StatusCode::FORBIDDEN => forbidden(route, error, message),
        StatusCode::NOT_FOUND => not_found(route, error, message),
        _ => other(route, status, message),
    }
}

fn forbidden(route: &Route, error: &Error, message: &str) -> Value {
    if route.is_v2() || !matches!(error, Error::TerminalForbidden(_)) {
        return json!({"_tag": "ForbiddenError", "message": message});
    }
    // A page never sees the body of a refused connection.
    if route.connects() {
        return json!({"_tag": "Forbidden"});
    }
    json!({"_tag": "PtyForbiddenError", "message": message})
}

fn invalid(route: &Route, error: &Error, message: &str) -> Value {
    let Error::Invalid { mistake, .. } = error else { return bad_request(route, None, message) };
    let not_applied =
        |reason: &str| json!({"name": "VcsApplyError", "data": {"message": message, "reason": reason}});
    if *mistake == Invalid::WorkspaceMissing {
        return not_applied("non-git");
    }
    if matches!(mistake, Invalid::PatchRefused | Invalid::PatchNotPermitted) {
        return not_applied("not-clean");
    }
    if *mistake == Invalid::Cursor && route.is_v2() {
        return json!({"_tag": "InvalidCursorError", "message": message});
    }
    bad_request(route, None, message)
}

fn bad_request(route: &Route, part: Option<RequestPart>, message: &str) -> Value {
    if route.is_plain() {
        let kind = part.unwrap_or(RequestPart::Query).as_str();
        return json!({"name": "BadRequest", "data": {"message": message, "kind": kind}});
    }
    let mut body = json!({"_tag": "InvalidRequestError", "message": message});
    if let Some(part) = part {
        body["kind"] = part.as_str().into();
    }
    body
}

fn not_found(route: &Route, error: &Error, message: &str) -> Value {
    let tagged = |tag: &str, member: &str, id: &str| tagged(tag, message, member, id);
    let entity = if let Error::NotFound(entity) = error { Some(*entity) } else { None };
    if entity == Some(Entity::Terminal) && (route.is_v2() || !route.connects()) {
        return tagged("PtyNotFoundError", "ptyID", &route.last);
    }
    if entity == Some(Entity::Project) {
        return tagged("ProjectNotFoundError", "projectID", &route.last);
    }
    if entity == Some(Entity::Provider) {
        return tagged("ProviderNotFoundError", "providerID", &route.last);
    }
    if entity == Some(Entity::Session) && route.is_v2() {
        return tagged("SessionNotFoundError", "sessionID", &route.first);
    }
    if entity == Some(Entity::Message) && route.is_v2() {
        let mut body = tagged("MessageNotFoundError", "sessionID", &route.first);
        body["messageID"] = route.last.as_str().into();
        return body;
    }
    if route.path.contains("/permission") {
        return tagged("PermissionNotFoundError", "requestID", &route.last);
    }
    if route.path.contains("/question") {
        return tagged("QuestionNotFoundError", "requestID", &route.last);
    }
    if route.is_v2() {
        return json!({"_tag": "NotFoundError", "message": message});
    }
    json!({"name": "NotFoundError", "data": {"message": message}})
}

fn other(route: &Route, status: StatusCode, message: &str) -> Value {
    if !route.is_v2() {
        return json!({"name": "UnknownError", "data": {"message": message}});
    }
    let is_unavailable = status == StatusCode::SERVICE_UNAVAILABLE;
    let tag = if is_unavailable { "ServiceUnavailableError" } else { "UnknownError" };
    json!({"_tag": tag, "message": message})
}

/// A tagged error that names an object by its id.
fn tagged(tag: &str, message: &str, member: &str, id: &str) -> Value {
    json!({"_tag": tag, member: id, "message": message})
}

/// The route of a refused request. If a path has several ids, the first one is that of a session, and the last one that of the
/// missing object.
struct Route {
    method: Method,
    path: String,
    first: String,
    last: String,
}

impl Route {
    fn is_v2(&self) -> bool {
        self.path.starts_with(V2)
    }

    /// Whether it connects to a terminal.
    fn connects(&self) -> bool {
        self.path.ends_with("/connect")
    }

    /// Whether OpenCode declares the older shape of bad requests: for reading, except below a session, and for most commands for
    /// terminal clients.
    fn is_plain(&self) -> bool {
        if let Some(command) = self.path.strip_prefix("/tui/") {
            return !["append-prompt", "execute-command", "publish", "select-session"].contains(&command);
        }
        if ["/experimental/tool", "/experimental/worktree"].contains(&self.path.as_str()) {
            return false;
        }
        let is_below_session = self.path.starts_with("/session/") && !self.path.ends_with("/diff");
        self.method == Method::GET && !self.is_v2() && !is_below_session
    }
}

/// Adds the bodies of refusals. A body shows no id if one of the path is not UTF-8.
pub(in crate::http) async fn with_body(
    path: MatchedPath,
    params: std::result::Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let ids: Vec<String> = params.iter().flatten().map(|(_, id)| id.to_owned()).collect();
    let (first, last) = (ids.first().cloned().unwrap_or_default(), ids.last().cloned().unwrap_or_default());
    let route = Route { method: request.method().clone(), path: path.as_str().to_owned(), first, last };
    let mut response = next.run(request).await;
    let refusal = response.extensions_mut().remove::<Arc<Refusal>>();
    match refusal.and_then(|refusal| refusal.body(&route)) {
        Some(body) => (response.into_parts().0, Json(body)).into_response(),
        None => response,
    }
}
