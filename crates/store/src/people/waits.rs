//! Why a session waits: the limit that holds it, how much of it is used, and since when.

use crate::{Store, error::Error, unsigned};
use domain::ids::{SessionId, TenantId};
use sqlx::Row as _;

/// How much of a tenant's limits is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Loops of the tenant that run.
    pub running: u64,
    /// Loops of the tenant that may run at once.
    pub running_max: u64,
}

/// What the sessions below one do, at any depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Below {
    /// Those that wait for a person.
    pub asking: u64,
    /// Those that go on without one.
    pub going_on: u64,
}

impl Store {
    /// Counts what the sessions below one wait for. Those that are over, and those that wait for others below them
    /// or for the budget of their root, are in neither number.
    ///
    /// # Errors
    /// `Db`.
    pub async fn count_below(&self, tenant: TenantId, session: &SessionId) -> Result<Below, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "with recursive tree as (
               select id from session where tenant_id = $1 and parent_id = $2
               union all
               select s.id from session s join tree t on s.parent_id = t.id where s.tenant_id = $1)
             select count(*) filter (where r.phase = 3 and r.waiting_reason in ('permission', 'question')) as asking,
                    count(*) filter (where r.phase in (1, 2) or (r.phase = 3 and r.waiting_reason not in
                      ('permission', 'question', 'children', 'budget'))) as going_on
               from tree t join session_run r on r.tenant_id = $1 and r.session_id = t.id",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_one(&mut *tx)
        .await?;
        let number = |column| row.try_get::<i64, _>(column).map(unsigned);
        Ok(Below { asking: number("asking")?, going_on: number("going_on")? })
    }

    /// Gives what the waiting sessions of a tenant must be measured by.
    ///
    /// # Errors
    /// `Db`.
    pub async fn get_usage(&self, tenant: TenantId) -> Result<Usage, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "select t.running_max::bigint as running_max,
                    (select count(*) from session_run r where r.tenant_id = $1 and r.phase = 2) as running
               from tenant t where t.id = $1",
        )
        .bind(tenant.0)
        .fetch_one(&mut *tx)
        .await?;
        let number = |column| row.try_get::<i64, _>(column).map(unsigned);
        Ok(Usage { running: number("running")?, running_max: number("running_max")? })
    }

    /// Gives the place of a runnable session in its tenant's queue, from 1; 0 when it is not runnable.
    ///
    /// # Errors
    /// `Db`.
    pub async fn get_queue_position(&self, tenant: TenantId, session: &SessionId) -> Result<u32, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "select count(q.session_id) as position from session_run r
               join session_run q on q.tenant_id = r.tenant_id and q.phase = 1
                and (q.class, q.queued_at, q.session_id) <= (r.class, r.queued_at, r.session_id)
              where r.tenant_id = $1 and r.session_id = $2 and r.phase = 1",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_one(&mut *tx)
        .await?;
        Ok(u32::try_from(row.try_get::<i64, _>("position")?).unwrap_or(u32::MAX))
    }
}
