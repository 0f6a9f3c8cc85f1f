//! One operation of the API: how it is served and how it is described stand in one entry, so neither is without the other.

use crate::state::State;
use axum::{
    Router,
    handler::Handler,
    http::Method,
    routing::{self, MethodRouter},
};

/// An operation. Its texts are schemas as [`super::document::notation`] reads them.
pub(super) struct Operation {
    pub(super) method: Method,
    /// Names of it stand in braces.
    pub(super) path: &'static str,
    /// What it does, in one sentence.
    pub(super) summary: &'static str,
    /// What its query may have beside the directory: an object.
    pub(super) query: Option<&'static str>,
    /// What its body is; `None`: it has none.
    pub(super) body: Option<&'static str>,
    pub(super) answer: Answer,
    /// Whether a session that works refuses it, or another one was asked for under the same name.
    pub(super) conflicts: bool,
    handler: MethodRouter<State>,
}

/// What an operation answers when it is done.
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
        (method, path): (Method, &'static str),
        handler: MethodRouter<State>,
        summary: &'static str,
    ) -> Self {
        let (query, body, answer, conflicts) = (None, None, Answer::Json("any"), false);
        Self { method, path, summary, query, body, answer, conflicts, handler }
    }

    /// Names what its query may have.
    pub(super) fn query(self, members: &'static str) -> Self {
        Self { query: Some(members), ..self }
    }

    /// Says what its body is.
    pub(super) fn takes(self, schema: &'static str) -> Self {
        Self { body: Some(schema), ..self }
    }

    /// Says what JSON it answers.
    pub(super) fn gives(self, schema: &'static str) -> Self {
        self.answers(Answer::Json(schema))
    }

    /// Says what it answers.
    pub(super) fn answers(self, answer: Answer) -> Self {
        Self { answer, ..self }
    }

    /// Says that 409 is one of its answers.
    pub(super) fn conflicts(self) -> Self {
        Self { conflicts: true, ..self }
    }

    /// Adds it to a router.
    pub(super) fn serve(self, router: Router<State>) -> Router<State> {
        router.route(self.path, self.handler)
    }
}

macro_rules! methods {
    ($($name:ident $method:ident),*) => {$(
        /// An operation of this method.
        pub(super) fn $name<H, T>(path: &'static str, handler: H, summary: &'static str) -> Operation
        where
            H: Handler<T, State>,
            T: 'static,
        {
            Operation::new((Method::$method, path), routing::$name(handler), summary)
        }
    )*};
}

methods!(get GET, post POST, put PUT, patch PATCH, delete DELETE);
