//! `TenantService`: tenants and the keys by which they call.

use super::{Service, from_store, is_text, name, next_cursor, page, to_wire};
use crate::auth::NewKey;
use bus::queue::Share;
use domain::{ids::TenantId, limits};
use rpc::{
    status::{invalid, not_found},
    v1::{self, tenant_service_server::TenantService},
};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl TenantService for Service {
    async fn create_tenant(
        &self,
        request: Request<v1::CreateTenantRequest>,
    ) -> Result<Response<v1::CreateTenantResponse>, Status> {
        self.0.operator(&request)?;
        let name = name(&request.get_ref().name)?;
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(invalid("name_invalid", "a tenant's name has letters, digits and dashes"));
        }
        let id = TenantId(uuid::Uuid::now_v7());
        let tenant = self.0.store.create_tenant(id, &name).await.map_err(from_store)?;
        Ok(Response::new(v1::CreateTenantResponse { tenant: Some(to_wire::tenant(tenant)) }))
    }

    async fn update_tenant(
        &self,
        request: Request<v1::UpdateTenantRequest>,
    ) -> Result<Response<v1::UpdateTenantResponse>, Status> {
        self.0.operator(&request)?;
        let request = request.into_inner();
        let id = request.tenant_id.parse();
        let id: TenantId = id.map_err(|_| invalid("tenant_missing", "name the tenant by its id, a UUID"))?;
        let running_max = limit("running_max", request.running_max, limits::TENANT_RUNNING_MOST)?;
        let weight = limit("weight", request.weight, limits::TENANT_WEIGHT_MAX)?;
        let tenant = self.0.store.update_tenant(id, running_max, weight).await.map_err(from_store)?;
        let share = Share { running_max: tenant.running_max, weight: tenant.weight };
        if let Err(error) = self.0.bus.set_share(id, share).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "Redis was not told of a tenant's share; its next prompt tells it");
        }
        Ok(Response::new(v1::UpdateTenantResponse { tenant: Some(to_wire::tenant(tenant)) }))
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> Result<Response<v1::ListTenantsResponse>, Status> {
        self.0.operator(&request)?;
        let page = page(request.into_inner().page, is_text)?;
        let tenants = self.0.store.list_tenants(&page).await.map_err(from_store)?;
        let next_cursor = next_cursor(&page, &tenants, |tenant| tenant.name.clone());
        let tenants = tenants.into_iter().map(to_wire::tenant).collect();
        Ok(Response::new(v1::ListTenantsResponse { tenants, next_cursor }))
    }

    async fn create_key(
        &self,
        request: Request<v1::CreateKeyRequest>,
    ) -> Result<Response<v1::CreateKeyResponse>, Status> {
        let named = request.get_ref().tenant_id.clone();
        let tenant = self.tenant(&request, &named).await?;
        let (new, name) = (NewKey::make(), name(&request.get_ref().name)?);
        let key =
            self.0.store.create_key(tenant, &new.prefix, &new.sha256, &name).await.map_err(from_store)?;
        Ok(Response::new(v1::CreateKeyResponse { key: Some(to_wire::key(key)), secret: new.secret }))
    }

    async fn list_keys(
        &self,
        request: Request<v1::ListKeysRequest>,
    ) -> Result<Response<v1::ListKeysResponse>, Status> {
        let named = request.get_ref().tenant_id.clone();
        let tenant = self.tenant(&request, &named).await?;
        let page = page(request.into_inner().page, is_text)?;
        let keys = self.0.store.list_keys(tenant, &page).await.map_err(from_store)?;
        let next_cursor = next_cursor(&page, &keys, |key| key.prefix.clone());
        Ok(Response::new(v1::ListKeysResponse {
            keys: keys.into_iter().map(to_wire::key).collect(),
            next_cursor,
        }))
    }

    async fn revoke_key(
        &self,
        request: Request<v1::RevokeKeyRequest>,
    ) -> Result<Response<v1::RevokeKeyResponse>, Status> {
        let named = request.get_ref().tenant_id.clone();
        let tenant = self.tenant(&request, &named).await?;
        let unknown = || not_found("key_not_found", "there is no such key");
        let prefix = Some(&request.get_ref().prefix).filter(|prefix| is_text(prefix)).ok_or_else(unknown)?;
        self.0.store.revoke_key(tenant, prefix).await.map_err(|error| match error {
            store::error::Error::NotFound(_) => unknown(),
            other => from_store(other),
        })?;
        Ok(Response::new(v1::RevokeKeyResponse {}))
    }
}

/// Checks a limit of a tenant; 0 leaves it as it is.
///
/// # Errors
/// `limit_too_high`.
fn limit(name: &str, asked: u32, most: u32) -> Result<Option<u32>, Status> {
    if asked > most {
        return Err(invalid("limit_too_high", format!("{name} is at most {most}")));
    }
    Ok((asked > 0).then_some(asked))
}

impl Service {
    /// Whose keys a call manages: the caller's own, or, for the operator, those of the tenant that is named.
    async fn tenant<T>(&self, request: &Request<T>, named: &str) -> Result<TenantId, Status> {
        if self.0.operator(request).is_ok() {
            let tenant =
                named.parse().map_err(|_| invalid("tenant_missing", "name the tenant by its id, a UUID"))?;
            return Ok(self.0.store.get_tenant(tenant).await.map_err(from_store)?.id);
        }
        let own = self.0.principal(request).await?.tenant;
        if named.is_empty() || named.parse() == Ok(own) {
            return Ok(own);
        }
        Err(not_found("tenant_not_found", "there is no such tenant"))
    }
}
