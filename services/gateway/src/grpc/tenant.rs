//! `TenantService`: tenants and their API keys. `AuditService`: who changed what.

use super::{
    convert,
    service::{Service, principal},
    status::respond,
};
use crate::app::tenants::{self, TenantChange};
use domain::policy::quota::TenantQuota;
use rpc::v1::{self, audit_service_server::AuditService, tenant_service_server::TenantService};
use store::{audit::AuditEntry, tenant::retention::Retention};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl TenantService for Service {
    async fn create_tenant(
        &self,
        request: Request<v1::CreateTenantRequest>,
    ) -> Result<Response<v1::CreateTenantResponse>, Status> {
        let principal = principal(&request)?;
        respond(tenants::create(&self.0, &principal, &request.get_ref().name).await, |tenant| {
            v1::CreateTenantResponse { tenant: Some(convert::tenant(tenant)) }
        })
    }

    async fn update_tenant(
        &self,
        request: Request<v1::UpdateTenantRequest>,
    ) -> Result<Response<v1::UpdateTenantResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let change = TenantChange {
            running_max: request.running_max,
            weight: request.weight,
            retention: Retention {
                idle_days: request.keep_idle_days,
                archived_days: request.keep_archived_days,
            },
            quota: TenantQuota {
                sessions: request.sessions_max,
                projects: request.projects_max,
                stored_bytes: request.stored_bytes_max,
            },
        };
        respond(tenants::update(&self.0, &principal, &request.tenant_id, change).await, |tenant| {
            v1::UpdateTenantResponse { tenant: Some(convert::tenant(tenant)) }
        })
    }

    async fn delete_tenant(
        &self,
        request: Request<v1::DeleteTenantRequest>,
    ) -> Result<Response<v1::DeleteTenantResponse>, Status> {
        let principal = principal(&request)?;
        let v1::DeleteTenantRequest { tenant_id, name } = request.into_inner();
        respond(tenants::delete(&self.0, &principal, &tenant_id, &name).await, |()| {
            v1::DeleteTenantResponse {}
        })
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> Result<Response<v1::ListTenantsResponse>, Status> {
        let principal = principal(&request)?;
        let page = convert::page(request.into_inner().page);
        respond(tenants::list(&self.0, &principal, page).await, |list| v1::ListTenantsResponse {
            tenants: list.entries.into_iter().map(convert::tenant).collect(),
            next_cursor: list.next.unwrap_or_default(),
        })
    }

    async fn list_usage(
        &self,
        request: Request<v1::ListUsageRequest>,
    ) -> Result<Response<v1::ListUsageResponse>, Status> {
        let principal = principal(&request)?;
        let v1::ListUsageRequest { tenant_id, page } = request.into_inner();
        let page = convert::page(page);
        respond(tenants::list_usage(&self.0, &principal, &tenant_id, page).await, |list| {
            v1::ListUsageResponse {
                usages: list.entries.into_iter().map(convert::usage).collect(),
                next_cursor: list.next.unwrap_or_default(),
            }
        })
    }

    async fn create_key(
        &self,
        request: Request<v1::CreateKeyRequest>,
    ) -> Result<Response<v1::CreateKeyResponse>, Status> {
        let principal = principal(&request)?;
        let role = convert::role(request.get_ref().role())?;
        let v1::CreateKeyRequest { tenant_id, name, .. } = request.into_inner();
        respond(tenants::create_key(&self.0, &principal, &tenant_id, &name, role).await, |issued| {
            v1::CreateKeyResponse { key: Some(convert::key(issued.key)), secret: issued.secret }
        })
    }

    async fn list_keys(
        &self,
        request: Request<v1::ListKeysRequest>,
    ) -> Result<Response<v1::ListKeysResponse>, Status> {
        let principal = principal(&request)?;
        let v1::ListKeysRequest { tenant_id, page } = request.into_inner();
        let page = convert::page(page);
        respond(tenants::list_keys(&self.0, &principal, &tenant_id, page).await, |list| {
            v1::ListKeysResponse {
                keys: list.entries.into_iter().map(convert::key).collect(),
                next_cursor: list.next.unwrap_or_default(),
            }
        })
    }

    async fn revoke_key(
        &self,
        request: Request<v1::RevokeKeyRequest>,
    ) -> Result<Response<v1::RevokeKeyResponse>, Status> {
        let principal = principal(&request)?;
        let v1::RevokeKeyRequest { tenant_id, prefix } = request.into_inner();
        respond(tenants::revoke_key(&self.0, &principal, &tenant_id, &prefix).await, |()| {
            v1::RevokeKeyResponse {}
        })
    }
}

#[tonic::async_trait]
impl AuditService for Service {
    async fn list_audit(
        &self,
        request: Request<v1::ListAuditRequest>,
    ) -> Result<Response<v1::ListAuditResponse>, Status> {
        let principal = principal(&request)?;
        let v1::ListAuditRequest { tenant_id, page } = request.into_inner();
        let page = convert::page(page);
        respond(tenants::list_audit(&self.0, &principal, &tenant_id, page).await, |list| {
            v1::ListAuditResponse {
                entries: list.entries.into_iter().map(entry).collect(),
                next_cursor: list.next.unwrap_or_default(),
            }
        })
    }
}

fn entry(entry: AuditEntry) -> v1::AuditEntry {
    v1::AuditEntry {
        seq: entry.seq,
        at_ms: entry.at.0,
        tenant_id: entry.tenant.map(|tenant| tenant.to_string()).unwrap_or_default(),
        actor: entry.actor.name,
        actor_key: entry.actor.key,
        action: entry.action,
        object: entry.object,
        before_sha256: entry.before_sha256.unwrap_or_default(),
        after_sha256: entry.after_sha256.unwrap_or_default(),
    }
}
