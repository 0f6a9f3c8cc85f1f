//! What OpenCode lets its one user change, and what belongs to somebody else where many use a service: it is refused in words.

use super::{caller::Caller, error::Result};
use crate::state::State;
use axum::{Json, extract::State as Shared};
use rpc::status::error;
use serde_json::{Value, json};
use tonic::{Code, Status};

fn forbidden(message: &str) -> Status {
    error(Code::PermissionDenied, "operator_only", message)
}

/// Settings bind everybody in a tenant.
pub(super) async fn settings(_: Caller) -> Result<Json<Value>> {
    let message = "settings bind all sessions of a tenant or a project: set them with `flotilla config set`, or in the \
        opencode.json of the repository";
    Err(forbidden(message).into())
}

/// Keys of providers are the operator's.
pub(super) async fn provider_key(_: Caller) -> Result<Json<Value>> {
    Err(forbidden("keys of providers are the operator's: they stand in the configuration of the workers")
        .into())
}

/// The service is upgraded under its clients by whoever runs it.
pub(super) async fn upgrade(_: Caller) -> Json<Value> {
    Json(json!({"success": false, "error": "the service is upgraded by its operator"}))
}

/// OpenCode forgets here what it read of a directory. Nothing is kept here that could be old: settings are read for each turn,
/// and what others use in the same directory goes on. Clients may keep something: they are told to read it anew.
pub(super) async fn dispose(Shared(state): Shared<State>, caller: Caller) -> Result<Json<bool>> {
    if let Some(project) = caller.find_project(&state).await? {
        state.tell_disposed(caller.principal.tenant, &project);
    }
    Ok(Json(true))
}

/// As [`dispose`], for all directories of the tenant.
pub(super) async fn dispose_all(Shared(state): Shared<State>, caller: Caller) -> Json<bool> {
    state.tell_all_disposed(caller.principal.tenant);
    Json(true)
}
