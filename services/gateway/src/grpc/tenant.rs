//! `TenantService`: tenants and their API keys.

use super::{convert, service::Service, status::respond};
use crate::app::tenants::{self, TenantChange};
use domain::policy::quota::TenantQuota;
use rpc::v1::{self, tenant_service_server::TenantService};
use store::control::retention::Retention;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl TenantService for Service {
    async fn create_tenant(
        &self,
        request: Request<v1::CreateTenantRequest>,
    ) -> Result<Response<v1::CreateTenantResponse>, Status> {
        let principal = self.operator(&request)?;
        respond(tenants::create(&self.0, &principal, &request.get_ref().name).await, |tenant| {
            v1::CreateTenantResponse { tenant: Some(convert::tenant(tenant)) }
        })
    }

    async fn update_tenant(
        &self,
        request: Request<v1::UpdateTenantRequest>,
    ) -> Result<Response<v1::UpdateTenantResponse>, Status> {
        let principal = self.operator(&request)?;
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
        let principal = self.operator(&request)?;
        let v1::DeleteTenantRequest { tenant_id, name } = request.into_inner();
        respond(tenants::delete(&self.0, &principal, &tenant_id, &name).await, |()| {
            v1::DeleteTenantResponse {}
        })
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> Result<Response<v1::ListTenantsResponse>, Status> {
        let principal = self.operator(&request)?;
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
        let principal = self.operator_or_tenant(&request).await?;
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
        let principal = self.operator_or_tenant(&request).await?;
        let v1::CreateKeyRequest { tenant_id, name } = request.into_inner();
        respond(tenants::create_key(&self.0, &principal, &tenant_id, &name).await, |issued| {
            v1::CreateKeyResponse { key: Some(convert::key(issued.key)), secret: issued.secret }
        })
    }

    async fn list_keys(
        &self,
        request: Request<v1::ListKeysRequest>,
    ) -> Result<Response<v1::ListKeysResponse>, Status> {
        let principal = self.operator_or_tenant(&request).await?;
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
        let principal = self.operator_or_tenant(&request).await?;
        let v1::RevokeKeyRequest { tenant_id, prefix } = request.into_inner();
        respond(tenants::revoke_key(&self.0, &principal, &tenant_id, &prefix).await, |()| {
            v1::RevokeKeyResponse {}
        })
    }
}
