//! Extracts the body, the query and the path of a request.

use super::{ids, query, read};
use crate::{
    app::gateway::Gateway,
    http::refusal::{Refusal, RequestPart},
    memory::bodies::BODY,
};
use axum::{
    extract::{
        self, FromRequest, FromRequestParts, MatchedPath, Request, path::ErrorKind, rejection::PathRejection,
    },
    http::request::Parts,
};
use serde::de::DeserializeOwned;

/// A JSON body; a missing body counts as an empty object.
pub(in crate::http) struct Body<T>(pub(in crate::http) T);

impl<T: DeserializeOwned> FromRequest<Gateway> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, Refusal> {
        let wrong = |error: String| RequestPart::Body.unreadable(error);
        let bytes = read::json(gateway, request, BODY).await?;
        let text: &[u8] = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { &bytes };
        // Serde would also accept a list for an object with only optional members.
        let value = match text.trim_ascii_start().first() {
            Some(b'{') => serde_json::from_slice(text),
            _ => return Err(wrong("the body is not a JSON object".to_owned())),
        };
        value.map(Self).map_err(|error| wrong(format!("cannot read the body: {error}")))
    }
}

/// The members of the query.
pub(in crate::http) struct Query<T>(pub(in crate::http) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        query::read(&parts.uri).map(Self)
    }
}

/// The parameters of the path.
pub(in crate::http) struct Path<T>(pub(in crate::http) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|rejection| unreadable_path(parts, rejection))
    }
}

/// The only mistake that a client can make in the texts of a path is a text that is not UTF-8.
fn unreadable_path(parts: &Parts, rejection: PathRejection) -> Refusal {
    let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let parameter = match rejection {
        PathRejection::FailedToDeserializePathParams(error) => match error.into_kind() {
            ErrorKind::InvalidUtf8InPathParam { key } => key,
            _ => String::new(),
        },
        _ => String::new(),
    };
    ids::not_utf8(route, &parameter)
}
