//! Checks that the caller has the scope of an operation, before anything reads its body. The handler gets the caller that was found here.

use super::caller::Caller;
use crate::{app::gateway::Gateway, http::refusal::Result, scope::Scope};
use axum::{
    extract::{self, FromRequestParts as _, Request},
    middleware::Next,
    response::Response,
};

/// What callers of an operation need.
#[derive(Clone)]
pub(in crate::http) struct State {
    pub(in crate::http) gateway: Gateway,
    pub(in crate::http) scope: Scope,
}

/// Serves the request if its caller has the scope.
pub(in crate::http) async fn check(
    extract::State(State { gateway, scope }): extract::State<State>,
    request: Request,
    next: Next,
) -> Result<Response> {
    let (mut head, body) = request.into_parts();
    let caller = Caller::from_request_parts(&mut head, &gateway).await?;
    caller.principal.require(scope)?;
    head.extensions.insert(caller);
    Ok(next.run(Request::from_parts(head, body)).await)
}
