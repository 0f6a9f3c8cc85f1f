//! The quotas of tenants, for subtasks: they count as sessions when they are created.

use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use domain::{
    ids::TenantId,
    policy::quota::{Level, Resource},
};
use rpc::v1::ErrorCode;

/// Returns a quota that has no room for a new session. Several workers and gateways together may let in a few more than the quota. Without an
/// answer of Postgres no quota is full: the write of the session fails anyway.
pub(super) async fn find_full(deps: &Deps, tenant: TenantId) -> Option<Level> {
    let read = async { Ok((deps.store.get_tenant(tenant).await?, deps.store.count_usage(tenant).await?)) };
    match with_store_timeout(read).await {
        Ok((tenant, usage)) => {
            let limits = tenant.quota.limits(deps.quota);
            let level = |resource| Level { resource, used: usage.of(resource), limit: limits.of(resource) };
            // Bytes are measured later. A tenant without any left begins nothing.
            [Resource::Sessions, Resource::StoredBytes]
                .map(level)
                .into_iter()
                .find(|level| level.is_exceeded_by(1))
        }
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot read the quota of a tenant");
            None
        }
    }
}

/// What the model reads instead of the answer of a subtask.
pub(super) fn refusal(full: Level) -> String {
    metrics::counter!("flotilla_quota_refusals_total", "resource" => full.resource.as_str()).increment(1);
    let code = ErrorCode::of_quota(full.resource).as_str();
    format!("{code}: {full}. No subtask was started; do this yourself.")
}
