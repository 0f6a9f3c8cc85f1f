//! Actions that OpenCode's single user can take, but that here belong to the operator or to all users of a tenant. The refusals
//! say so.

use crate::{
    app::{gateway::Gateway, projects::manage},
    errors::error::Error,
    http::{callers::caller::Caller, refusal::Result},
};
use axum::{Json, extract::State};
use serde_json::{Value, json};

/// Refused: settings bind every user of the tenant.
pub(in crate::http) async fn settings(_: Caller) -> Result<Json<Value>> {
    let message = "settings bind all sessions of a tenant or a project; set them with `flotilla config set` or in the repository's \
        opencode.json";
    Err(Error::OperatorOnly(message).into())
}

/// Refused: the operator manages provider keys.
pub(in crate::http) async fn provider_key(_: Caller) -> Result<Json<Value>> {
    let message = "provider keys are managed by the operator, in the configuration of the workers";
    Err(Error::OperatorOnly(message).into())
}

/// The operator upgrades the service.
pub(in crate::http) async fn upgrade(_: Caller) -> Json<Value> {
    Json(json!({"success": false, "error": "the operator upgrades this service"}))
}

/// OpenCode drops its cache of a directory here. The gateway has no such cache, so it only asks the clients to read again.
pub(in crate::http) async fn dispose(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<bool>> {
    manage::refresh_clients(&gateway, &caller.principal, caller.directory(&gateway).await?).await?;
    Ok(Json(true))
}

/// Like [`dispose`], for all directories of the tenant.
pub(in crate::http) async fn dispose_all(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<bool>> {
    manage::refresh_all_clients(&gateway, &caller.principal)?;
    Ok(Json(true))
}
