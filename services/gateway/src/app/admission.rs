//! Lets a call store something if the tenant's quota allows it.

use crate::{
    auth::principal::Account,
    errors::error::Error,
    quotas::{Growth, QuotaHolder},
    state::State,
};
use domain::policy::quota::Level;

/// Counts what a call is about to store. Returns the levels of which people have to be warned now.
///
/// # Errors
/// `sessions_too_many`, `projects_too_many`, `storage_full`, `store_unavailable`.
pub(in crate::app) async fn admit(
    state: &State,
    account: Account,
    growths: &[Growth],
) -> Result<Vec<Level>, Error> {
    let holder = QuotaHolder { tenant: account.tenant, quota: account.quota };
    state.quotas.admit(&state.store, holder, growths).await
}

/// What people are told near a quota.
pub(in crate::app) fn warning(near: &[Level]) -> Option<String> {
    let parts: Vec<String> = near
        .iter()
        .map(|level| format!("{} % of its {} {}", level.percent(), level.limit, level.resource.as_str()))
        .collect();
    (!parts.is_empty()).then(|| format!("this tenant uses {}", parts.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::policy::quota::Resource;

    #[test]
    fn a_warning_names_each_level() {
        let level = |resource, used| Level { resource, used, limit: 10 };
        let near = [level(Resource::Sessions, 8), level(Resource::StoredBytes, 9)];
        let text = "this tenant uses 80 % of its 10 sessions and 90 % of its 10 stored bytes";
        assert_eq!(warning(&near).as_deref(), Some(text));
        assert_eq!(warning(&[]), None);
    }
}
