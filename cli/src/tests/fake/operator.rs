//! The operator's view in the fake gateway, and the commands that it accepts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Answer, Fake};
use rpc::v1::{
    admin_service_server::AdminService, audit_service_server::AuditService,
    tenant_service_server::TenantService, *,
};
use tonic::{Request, Response};

impl Fake {
    fn order(&self, text: String) {
        self.0.lock().unwrap().orders.push(text);
    }
}

#[tonic::async_trait]
impl AdminService for Fake {
    async fn list_queue(&self, request: Request<ListQueueRequest>) -> Answer<ListQueueResponse> {
        // Two pages.
        let cursor = request.into_inner().page.unwrap_or_default().cursor;
        let (tenant_name, next_cursor) = if cursor.is_empty() { ("a", "a") } else { ("b", "") };
        self.order(format!("queue {cursor}"));
        let line = QueueLine { tenant_name: tenant_name.to_owned(), ..QueueLine::default() };
        Ok(Response::new(ListQueueResponse { lines: vec![line], next_cursor: next_cursor.to_owned() }))
    }

    async fn list_workers(&self, _: Request<ListWorkersRequest>) -> Answer<ListWorkersResponse> {
        self.order("workers".to_owned());
        Ok(Response::new(ListWorkersResponse { workers: vec![Worker::default()] }))
    }

    async fn list_control(&self, request: Request<ListControlRequest>) -> Answer<ListControlResponse> {
        self.order(format!("sessions {:?}", request.get_ref().state()));
        let sessions = vec![Control::default()];
        Ok(Response::new(ListControlResponse { sessions }))
    }

    async fn drain_worker(&self, request: Request<DrainWorkerRequest>) -> Answer<DrainWorkerResponse> {
        let DrainWorkerRequest { worker, undo } = request.into_inner();
        self.order(format!("{}drain {worker}", if undo { "undo " } else { "" }));
        Ok(Response::new(DrainWorkerResponse { asked: 1 }))
    }

    async fn release_session(
        &self,
        request: Request<ReleaseSessionRequest>,
    ) -> Answer<ReleaseSessionResponse> {
        let ReleaseSessionRequest { session_id, tenant_id } = request.into_inner();
        self.order(format!("release {session_id} of {tenant_id}"));
        Ok(Response::new(ReleaseSessionResponse {}))
    }

    async fn kill_session(&self, request: Request<KillSessionRequest>) -> Answer<KillSessionResponse> {
        let KillSessionRequest { session_id, reason, tenant_id } = request.into_inner();
        self.order(format!("kill {session_id} of {tenant_id}: {reason}"));
        Ok(Response::new(KillSessionResponse { subtasks: 0 }))
    }
}

#[tonic::async_trait]
impl AuditService for Fake {
    async fn list_audit(&self, request: Request<ListAuditRequest>) -> Answer<ListAuditResponse> {
        let ListAuditRequest { tenant_id, page } = request.into_inner();
        // Two pages.
        let next_cursor = if page.unwrap_or_default().cursor.is_empty() { "more" } else { "" }.to_owned();
        let entries = vec![AuditEntry { tenant_id, ..AuditEntry::default() }];
        Ok(Response::new(ListAuditResponse { entries, next_cursor }))
    }
}

#[tonic::async_trait]
impl TenantService for Fake {
    async fn list_tenants(&self, request: Request<ListTenantsRequest>) -> Answer<ListTenantsResponse> {
        let cursor = request.into_inner().page.unwrap_or_default().cursor;
        let (name, next_cursor) = if cursor.is_empty() { ("a", "a") } else { ("b", "") };
        let tenant = Tenant { name: name.to_owned(), id: format!("id-of-{name}"), ..Tenant::default() };
        Ok(Response::new(ListTenantsResponse { tenants: vec![tenant], next_cursor: next_cursor.to_owned() }))
    }

    async fn update_tenant(&self, request: Request<UpdateTenantRequest>) -> Answer<UpdateTenantResponse> {
        let request = request.into_inner();
        let UpdateTenantRequest { tenant_id, running_max, weight, .. } = &request;
        let idle = request.keep_idle_days.map(|days| format!(" idle {days}")).unwrap_or_default();
        let archived = request.keep_archived_days.map(|days| format!(" archived {days}")).unwrap_or_default();
        let quota = match (request.sessions_max, request.projects_max, request.stored_bytes_max) {
            (None, None, None) => String::new(),
            (sessions, projects, bytes) => format!(" quota {sessions:?} {projects:?} {bytes:?}"),
        };
        self.order(format!("tenant {tenant_id} {running_max} {weight}{idle}{archived}{quota}"));
        Ok(Response::new(UpdateTenantResponse { tenant: Some(Tenant::default()) }))
    }

    async fn list_usage(&self, request: Request<ListUsageRequest>) -> Answer<ListUsageResponse> {
        let ListUsageRequest { tenant_id, page } = request.into_inner();
        // Two pages.
        let next_cursor = if page.unwrap_or_default().cursor.is_empty() { "more" } else { "" }.to_owned();
        self.order(format!("usage of {tenant_id}"));
        let usage = Usage { tenant_id, ..Usage::default() };
        Ok(Response::new(ListUsageResponse { usages: vec![usage], next_cursor }))
    }

    async fn delete_tenant(&self, request: Request<DeleteTenantRequest>) -> Answer<DeleteTenantResponse> {
        let DeleteTenantRequest { tenant_id, name } = request.into_inner();
        self.order(format!("delete tenant {tenant_id} {name}"));
        Ok(Response::new(DeleteTenantResponse {}))
    }

    async fn create_tenant(&self, request: Request<CreateTenantRequest>) -> Answer<CreateTenantResponse> {
        let name = request.into_inner().name;
        self.order(format!("create {name}"));
        Ok(Response::new(CreateTenantResponse { tenant: Some(Tenant { name, ..Tenant::default() }) }))
    }

    async fn create_key(&self, request: Request<CreateKeyRequest>) -> Answer<CreateKeyResponse> {
        let role = request.get_ref().role().as_str_name().trim_start_matches("KEY_ROLE_").to_lowercase();
        let CreateKeyRequest { tenant_id, name, .. } = request.into_inner();
        self.order(format!("create {role} key {name} of {tenant_id}"));
        let key = Key { prefix: "flo_1".to_owned(), name, ..Key::default() };
        Ok(Response::new(CreateKeyResponse { key: Some(key), secret: "secret".to_owned() }))
    }

    async fn list_keys(&self, request: Request<ListKeysRequest>) -> Answer<ListKeysResponse> {
        let ListKeysRequest { tenant_id, page } = request.into_inner();
        // Two pages.
        let next_cursor = if page.unwrap_or_default().cursor.is_empty() { "more" } else { "" }.to_owned();
        let key = Key { name: format!("{next_cursor} of {tenant_id}"), ..Key::default() };
        Ok(Response::new(ListKeysResponse { keys: vec![key], next_cursor }))
    }

    async fn revoke_key(&self, request: Request<RevokeKeyRequest>) -> Answer<RevokeKeyResponse> {
        let RevokeKeyRequest { tenant_id, prefix } = request.into_inner();
        self.order(format!("revoke {prefix} of {tenant_id}"));
        Ok(Response::new(RevokeKeyResponse {}))
    }
}
