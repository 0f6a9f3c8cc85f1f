//! One operation of the API. Its handler and its description are one entry, so neither exists without the other.

use crate::{app::ground::gateway::Gateway, http::ground::origin};
use axum::{
    Router,
    handler::Handler,
    http::Method,
    middleware::from_fn_with_state,
    routing::{self, MethodRouter},
};

/// An operation. Its texts are schemas in the notation of [`super::notation`].
pub(in crate::http) struct Operation {
    pub(super) method: Method,
    /// Parameters are in braces.
    pub(super) path: &'static str,
    /// Its purpose, in one sentence.
    pub(super) summary: &'static str,
    /// Its query parameters other than the directory: an object.
    pub(super) query: Option<&'static str>,
    /// Its body; `None`: no body.
    pub(super) body: Option<&'static str>,
    pub(super) answer: Answer,
    /// Whether it can answer 409: the session is busy, or another object has the same name.
    pub(super) conflicts: bool,
    /// Whether it changes something. A page of another site may not call it.
    pub(super) acts: bool,
    handler: MethodRouter<Gateway>,
}

/// The answer of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// JSON of this schema.
    Json(&'static str),
    /// No body.
    Nothing,
    /// Server-sent events whose data has this schema.
    Events(&'static str),
    /// A text of this media type.
    Text(&'static str),
    /// A WebSocket.
    Socket,
}

impl Operation {
    fn new(
        method: Method,
        path: &'static str,
        handler: MethodRouter<Gateway>,
        summary: &'static str,
    ) -> Self {
        Self {
            acts: method != Method::GET,
            method,
            path,
            summary,
            query: None,
            body: None,
            answer: Answer::Json("any"),
            conflicts: false,
            handler,
        }
    }

    /// Sets the query.
    pub(super) fn query(self, members: &'static str) -> Self {
        Self { query: Some(members), ..self }
    }

    /// Sets the body.
    pub(super) fn takes(self, schema: &'static str) -> Self {
        Self { body: Some(schema), ..self }
    }

    /// Sets the JSON of the answer.
    pub(super) fn gives(self, schema: &'static str) -> Self {
        self.answers(Answer::Json(schema))
    }

    /// Sets the answer.
    pub(super) fn answers(self, answer: Answer) -> Self {
        Self { answer, ..self }
    }

    /// Declares 409 as one of its responses.
    pub(super) fn conflicts(self) -> Self {
        Self { conflicts: true, ..self }
    }

    /// Declares that it changes something although it only reads by its method.
    pub(super) fn acts(self) -> Self {
        Self { acts: true, ..self }
    }

    /// Adds it to a router.
    pub(in crate::http) fn serve(self, gateway: &Gateway, router: Router<Gateway>) -> Router<Gateway> {
        let guard = || from_fn_with_state(gateway.clone(), origin::guard);
        router.route(self.path, if self.acts { self.handler.route_layer(guard()) } else { self.handler })
    }
}

macro_rules! methods {
    ($($name:ident $method:ident),*) => {$(
        /// An operation of this method.
        pub(super) fn $name<H, T>(path: &'static str, handler: H, summary: &'static str) -> Operation
        where
            H: Handler<T, Gateway>,
            T: 'static,
        {
            Operation::new(Method::$method, path, routing::$name(handler), summary)
        }
    )*};
}

methods!(get GET, post POST, put PUT, patch PATCH, delete DELETE);
