//! Quotas of the platform: settings that gateways and workers share, under the same names.

use domain::policy::quota::PlatformQuota;

/// What a tenant may store unless it has a quota of its own. Gateways check it, and workers before they start a subtask.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct QuotaConfig {
    /// Sessions that a tenant may have, their subtasks included, unless it has a quota of its own. Beyond it: `sessions_too_many`.
    #[arg(long, env = "FLOTILLA_TENANT_SESSIONS_MAX", default_value_t = 100_000)]
    pub tenant_sessions_max: u64,
    /// Projects that a tenant may have, unless it has a quota of its own. Beyond it: `projects_too_many`.
    #[arg(long, env = "FLOTILLA_TENANT_PROJECTS_MAX", default_value_t = 10_000)]
    pub tenant_projects_max: u64,
    /// Bytes that a tenant may store in logs and bundles, unless it has a quota of its own: 256 GiB. Beyond it: `storage_full`.
    #[arg(long, env = "FLOTILLA_TENANT_STORED_BYTES_MAX", default_value_t = 256 << 30)]
    pub tenant_stored_bytes_max: u64,
}

impl QuotaConfig {
    /// The quota that counts for these settings.
    pub fn platform_quota(self) -> PlatformQuota {
        PlatformQuota {
            sessions: self.tenant_sessions_max,
            projects: self.tenant_projects_max,
            stored_bytes: self.tenant_stored_bytes_max,
        }
    }
}
