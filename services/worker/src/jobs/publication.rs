//! Pushes what a session has made to a branch of the platform, under the same rules as a push of a person.

use super::error::{JobError, Refusal};
use crate::{
    process::{deps::Deps, sandbox::is_missing, store_timeout::with_store_timeout},
    repository::above::SettingsAbove,
};
use domain::{
    egress::push::SESSION_TRAILER,
    ids::{SessionId, TenantId},
};
use rpc::{
    push::{CarriedPush, CarryError},
    v1::{self, ErrorCode},
};
use settings::push::PushDestination;
use store::rows::session_row::Session;

/// Pushes the files of a session to `branch`. Returns the commit at which the branch is; `None`: the session has made nothing.
///
/// # Errors
/// `Final`: it cannot be pushed as things are.
///
/// Dropped midway: pushed or not; the same again finds out.
pub(super) async fn publish(
    deps: &Deps,
    tenant: TenantId,
    session: &SessionId,
    branch: &str,
    message: &str,
) -> Result<Option<String>, Refusal> {
    let read = async {
        let named = deps.store.get_session(tenant, session).await?;
        let owner = deps.store.get_session(tenant, &named.workspace_id).await?;
        let stored = deps.store.list_settings_of(tenant, session).await?;
        Ok((named, owner, stored))
    };
    let (named, owner, stored) =
        with_store_timeout(read).await.map_err(|error| Refusal::Later(JobError::from(error)))?;
    let refused = |text: String| Refusal::Final(None, text);
    let above = SettingsAbove::of(&deps.platform, &stored);
    let above = above.map_err(|problems| refused(format!("the settings cannot be read: {problems}")))?;
    let url =
        named.source.push_url().ok_or_else(|| refused("the files came from no repository".to_owned()))?;
    let destination = PushDestination::find(&above.settings.git_push, url, branch, &owner.info.id);
    let destination = destination.map_err(|error| refused(error.to_string()))?;
    match push(deps, tenant, &owner, &destination, message).await {
        Ok(CarriedPush { answer, .. }) => Ok(Some(answer.commit)),
        Err(status) if rpc::status::code(&status) == Some(ErrorCode::PushNothing) => Ok(None),
        // No tool has opened the files.
        Err(status) if is_missing(&status) && !owner.has_workspace => Ok(None),
        Err(status) => Err(status.into()),
    }
}

async fn push(
    deps: &Deps,
    tenant: TenantId,
    owner: &Session,
    destination: &PushDestination,
    message: &str,
) -> Result<CarriedPush, tonic::Status> {
    let session = &owner.info.id;
    let Some(broker) = &deps.broker else {
        return Err(rpc::status::error(ErrorCode::PushUnavailable, "this deployment has no broker"));
    };
    let export = v1::ExportWorkspaceRequest {
        tenant_id: tenant.to_string(),
        session_id: session.to_string(),
        workspace_session_id: owner.workspace_id.to_string(),
        workspace_opening: Some(owner.workspace_opening),
        commit_message: message.trim_end().to_owned(),
        message_line: format!("{SESSION_TRAILER}{session}"),
        ..Default::default()
    };
    let pieces = deps.sandbox.client().export_workspace(export).await?.into_inner();
    let header = v1::PushHeader {
        tenant_id: tenant.to_string(),
        project_id: owner.info.project_id.to_string(),
        session_id: session.to_string(),
        ..v1::PushHeader::from(destination)
    };
    let (messages, carrier) = rpc::push::begin(pieces, header).await?;
    carrier.end(broker.push(messages)).await.map_err(|error| match error {
        CarryError::Export(status) | CarryError::Push(status) => status,
    })
}
