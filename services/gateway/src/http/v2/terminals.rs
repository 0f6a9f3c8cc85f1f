//! Terminals in the newer API: those of `v1`, with the location of the directory.

use super::location;
use crate::{
    app::gateway::Gateway,
    http::{
        callers::caller::Caller,
        input::extractors::{Body, Path},
        refusal::Result,
        v1::terminals::pty::{self, CreateBody, UpdateBody},
    },
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use serde_json::Value;

/// The terminals of the directory.
pub(in crate::http) async fn list(gateway: State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let terminals = pty::list(gateway.clone(), caller.clone()).await?.0;
    location::list(&gateway, &caller, terminals).await
}

/// Starts a program at a new terminal.
pub(in crate::http) async fn create(
    gateway: State<Gateway>,
    caller: Caller,
    body: Body<CreateBody>,
) -> Result<Json<Value>> {
    let terminal = pty::create(gateway.clone(), caller.clone(), body).await?.0;
    location::one(&gateway, &caller, terminal).await
}

pub(in crate::http) async fn get(
    gateway: State<Gateway>,
    caller: Caller,
    pty: Path<String>,
) -> Result<Json<Value>> {
    let terminal = pty::get(gateway.clone(), caller.clone(), pty).await?.0;
    location::one(&gateway, &caller, terminal).await
}

/// Renames or resizes a terminal.
pub(in crate::http) async fn update(
    gateway: State<Gateway>,
    caller: Caller,
    pty: Path<String>,
    body: Body<UpdateBody>,
) -> Result<Json<Value>> {
    let terminal = pty::update(gateway.clone(), caller.clone(), pty, body).await?.0;
    location::one(&gateway, &caller, terminal).await
}

pub(in crate::http) async fn delete(
    gateway: State<Gateway>,
    caller: Caller,
    pty: Path<String>,
) -> Result<StatusCode> {
    pty::delete(gateway, caller, pty).await.map(|_| StatusCode::NO_CONTENT)
}

/// Issues a ticket for one connection.
pub(in crate::http) async fn connect_token(
    gateway: State<Gateway>,
    caller: Caller,
    pty: Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    let token = pty::connect_token(gateway.clone(), caller.clone(), pty, headers).await?.0;
    location::one(&gateway, &caller, token).await
}
