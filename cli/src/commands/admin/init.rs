//! `flotilla admin init`: the first tenant of a deployment and its first key.

use crate::{
    client::{Client, call},
    commands::key,
    terminal::output::{self, Output},
};
use anyhow::Result;
use rpc::v1::{CreateKeyRequest, CreateTenantRequest, KeyRole};
use serde_json::json;

/// Creates a tenant, unless there is one with the name, and a key of an admin in it.
pub(super) async fn run(client: &Client, output: &Output, tenant: &str, key_name: &str) -> Result<()> {
    let request = CreateTenantRequest { name: tenant.to_owned() };
    let create = async || client.tenants().create_tenant(request.clone()).await;
    let created = call("create the tenant", create).await?.tenant.unwrap_or_default();
    let request = CreateKeyRequest {
        tenant_id: created.id.clone(),
        name: key_name.to_owned(),
        role: KeyRole::Admin.into(),
    };
    let issued = key::issue(client, request).await?;
    if output.is_json() {
        return output.json(&json!({
            "type": "init", "tenant_id": created.id, "tenant": created.name,
            "key": issued.key.unwrap_or_default().prefix, "secret": issued.secret,
        }));
    }
    output::note(&format!(
        "tenant {} has the id {}; keep this key of an admin, it is shown only now. `flotilla login URL` asks for it:",
        created.name, created.id
    ));
    output.line(&issued.secret)
}
