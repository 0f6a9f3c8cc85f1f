//! Why a session waits: the limits of its tenant, and the waits of the sessions below it.

use crate::{
    Store,
    column::unsigned,
    error::Error,
    phase::{RUNNABLE, RUNNING, WAITING},
};
use domain::ids::{SessionId, TenantId};
use sqlx::{AssertSqlSafe, Row as _};

/// The number of running loops of a tenant, and its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Running loops of the tenant.
    pub running: u64,
    /// Maximum concurrent loops of the tenant.
    pub running_max: u64,
}

/// The sessions below one session, at any depth, counted by what they wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DescendantCounts {
    /// Sessions that wait for a person.
    pub asking: u64,
    /// Sessions that continue without a person.
    pub going_on: u64,
}

impl Store {
    /// Counts the sessions below one session. Neither number contains idle sessions, nor sessions that wait for their own
    /// children or for the budget of their root.
    ///
    /// # Errors
    /// `Db`.
    pub async fn count_below(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<DescendantCounts, Error> {
        // `limit 1` makes Postgres look up each session below: it does not know how few they are.
        let query = sqlx::query(AssertSqlSafe(format!(
            "with recursive tree as (
               select id from session where tenant_id = $1 and parent_id = $2
               union all
               select s.id from session s join tree t on s.parent_id = t.id where s.tenant_id = $1)
             select count(*) filter (where r.phase = {WAITING} and r.waiting_reason in ('permission', 'question')) as asking,
                    count(*) filter (where r.phase in ({RUNNABLE}, {RUNNING})
                      or (r.phase = {WAITING} and r.waiting_reason not in
                          ('permission', 'question', 'children', 'budget'))) as going_on
               from tree t cross join lateral (
                 select phase, waiting_reason from session_run where tenant_id = $1 and session_id = t.id limit 1) r"
        )))
        .bind(tenant.0)
        .bind(session.as_str());
        let row = self.statements(tenant).await?.fetch_one(query).await?;
        let number = |column| row.try_get::<i64, _>(column).map(unsigned);
        Ok(DescendantCounts { asking: number("asking")?, going_on: number("going_on")? })
    }

    /// Returns the number of running loops of a tenant, and its maximum.
    ///
    /// # Errors
    /// `Db`.
    pub async fn get_usage(&self, tenant: TenantId) -> Result<Usage, Error> {
        let query = sqlx::query(AssertSqlSafe(format!(
            "select t.running_max::bigint as running_max,
                    (select count(*) from session_run r where r.tenant_id = $1 and r.phase = {RUNNING}) as running
               from tenant t where t.id = $1"
        )))
        .bind(tenant.0);
        let row = self.statements(tenant).await?.fetch_one(query).await?;
        let number = |column| row.try_get::<i64, _>(column).map(unsigned);
        Ok(Usage { running: number("running")?, running_max: number("running_max")? })
    }
}
