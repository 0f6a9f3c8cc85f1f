//! One operation of the API. Its handler and its description are one entry, so neither exists without the other.

use crate::{
    app::gateway::Gateway,
    http::callers::{access, origin},
    scope::Scope,
};
use axum::{
    Router,
    extract::{Request, State},
    handler::Handler,
    http::Method,
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::{self, MethodRouter},
};
use std::time::Instant;

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
    pub(super) answer: ResponseShape,
    /// Whether it can answer 409: the session is busy, or another object has the same name.
    pub(super) conflicts: bool,
    /// Whether it changes something. A page of another site may not call it.
    pub(super) acts: bool,
    /// What its callers need. `None`: its handler decides who may call it.
    pub(super) scope: Option<Scope>,
    handler: MethodRouter<Gateway>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseShape {
    /// JSON of this schema.
    Json(&'static str),
    /// No body.
    Nothing,
    /// Server-sent events whose data has this schema.
    Events(&'static str),
    /// A text of this media type.
    Text(&'static str),
    Socket,
}

impl Operation {
    fn new(
        method: Method,
        path: &'static str,
        handler: MethodRouter<Gateway>,
        summary: &'static str,
    ) -> Self {
        let acts = method != Method::GET;
        Self {
            acts,
            scope: Some(if acts { Scope::Write } else { Scope::Read }),
            method,
            path,
            summary,
            query: None,
            body: None,
            answer: ResponseShape::Json("any"),
            conflicts: false,
            handler,
        }
    }

    pub(super) fn query(self, members: &'static str) -> Self {
        Self { query: Some(members), ..self }
    }

    pub(super) fn takes(self, schema: &'static str) -> Self {
        Self { body: Some(schema), ..self }
    }

    /// Sets the JSON of the answer.
    pub(super) fn gives(self, schema: &'static str) -> Self {
        self.answers(ResponseShape::Json(schema))
    }

    pub(super) fn answers(self, answer: ResponseShape) -> Self {
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

    /// Declares the scope that its callers need, if it is not the one of its method.
    pub(super) fn needs(self, scope: Scope) -> Self {
        Self { scope: Some(scope), ..self }
    }

    /// Declares that its handler decides who may call it.
    pub(super) fn without_scope(self) -> Self {
        Self { scope: None, ..self }
    }

    /// Adds it to a router. Pages of other sites and callers without its scope are refused before its body is read.
    pub(in crate::http) fn serve(self, gateway: &Gateway, router: Router<Gateway>) -> Router<Gateway> {
        let mut handler = self.handler;
        if let Some(scope) = self.scope {
            let state = access::State { gateway: gateway.clone(), scope };
            handler = handler.route_layer(from_fn_with_state(state, access::check));
        }
        if self.acts {
            handler = handler.route_layer(from_fn_with_state(gateway.clone(), origin::guard));
        }
        let name = Measured { method: self.method.to_string(), path: self.path };
        router.route(self.path, handler.route_layer(from_fn_with_state(name, measured)))
    }
}

#[derive(Clone)]
struct Measured {
    method: String,
    path: &'static str,
}

/// Counts the requests of an operation by their status, and measures how long they take. A stream has the status and the time of its beginning.
async fn measured(State(operation): State<Measured>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let response = next.run(request).await;
    let Measured { method, path } = operation;
    let status = response.status().as_str().to_owned();
    let labels = [("method", method), ("path", path.to_owned())];
    metrics::histogram!("flotilla_http_request_ms", &labels).record(begun.elapsed().as_secs_f64() * 1_000.0);
    let [method, path] = labels;
    let labels = [method, path, ("status", status)];
    metrics::counter!("flotilla_http_requests_total", &labels).increment(1);
    response
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
