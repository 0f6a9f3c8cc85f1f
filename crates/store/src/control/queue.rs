//! Which sessions need a worker, in the order in which they are offered: what the sweep of every worker asks for. No
//! tenant, and nothing that nobody takes, may hide the others behind the end of a page.

use super::claimable::{Claimable, Place, claimable, place};
use crate::{Store, error::Error, guard::guarded};
use domain::mutant::Mutant;
use sqlx::Row as _;
use uuid::Uuid;

/// Where a page of [`Store::list_queued`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    queued_us: i64,
    place: Place,
}

impl Store {
    /// Makes at most `limit` sessions runnable whose timer is over, the longest over first, and gives them. What is beyond
    /// the limit, or is being changed, is left to the next call: who takes many rows in any order must wait for none.
    ///
    /// # Errors
    /// `Db`: woken or not; who is woken is runnable, which [`Store::list_runnable`] finds.
    pub async fn wake_due(&self, limit: i64) -> Result<Vec<Claimable>, Error> {
        // Materialized: as a plain sub-select it may be evaluated again for each row, and each time with other rows.
        let rows = sqlx::query(
            "with due as materialized (
               select tenant_id, session_id from session_run where wake_at <= now() and phase = 3
                order by wake_at limit $1 for update skip locked)
             update session_run r set phase = 1, wake_at = null, queued_at = now(), waiting_reason = null,
                    waiting_detail = null
               from due join tenant t on t.id = due.tenant_id
              where r.tenant_id = due.tenant_id and r.session_id = due.session_id
             returning r.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight",
        )
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(claimable).collect()
    }

    /// Makes at most `limit` sessions runnable that wait for a time and began to wait in the future: the clock was set back
    /// since, and their time would come that much too late. A loop that finds nothing to do waits again. Gives how many.
    ///
    /// # Errors
    /// `Db`: woken or not.
    pub async fn wake_from_the_future(&self, limit: i64) -> Result<u64, Error> {
        let done = sqlx::query(
            "with early as materialized (
               select tenant_id, session_id from session_run
                where wake_at is not null and phase = 3 and waiting_at > now() + interval '1 minute'
                limit $1 for update skip locked)
             update session_run r set phase = 1, wake_at = null, queued_at = now(), waiting_reason = null,
                    waiting_detail = null
               from early where r.tenant_id = early.tenant_id and r.session_id = early.session_id",
        )
        .bind(limit)
        .execute(&self.system)
        .await?;
        Ok(done.rows_affected())
    }

    /// Lists runnable sessions: of each tenant and class the longest waiting one, then the second of each, and so on;
    /// among those the most urgent and longest waiting first. Of each no more than twice its part of `limit`.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_runnable(&self, limit: i64) -> Result<Vec<Claimable>, Error> {
        // The tenants and classes one by one along the index, and of each only what is asked for: the cost must not grow
        // with a backlog.
        let rows = sqlx::query(
            "with recursive lane as (
               (select tenant_id, class from session_run where phase = 1 order by tenant_id, class limit 1)
               union all
               select next.* from lane cross join lateral (
                 select tenant_id, class from session_run
                  where phase = 1 and (tenant_id, class) > (lane.tenant_id, lane.class)
                  order by tenant_id, class limit 1) next),
             part as (select greatest(2 * $1 / greatest(count(*), 1), 1) as size from lane)
             select lane.tenant_id, r.session_id, lane.class, r.attempts, t.running_max, t.weight
               from lane join tenant t on t.id = lane.tenant_id cross join part cross join lateral (
                 select session_id, attempts, queued_at, row_number() over (order by queued_at nulls first) as nth
                   from session_run where phase = 1 and tenant_id = lane.tenant_id and class = lane.class
                  order by queued_at nulls first limit part.size) r
              order by r.nth, lane.class, r.queued_at nulls first limit $1",
        )
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(claimable).collect()
    }

    /// Lists the runnable sessions that may be taken when nobody but Postgres shares the slots out: of each tenant no more
    /// than may run beside what runs, its most urgent and longest waiting first; tenants that run least for their weight
    /// come first. Workers that ask in the same moment get the same list, so they seldom pass the limit together.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_takeable(&self, limit: i64) -> Result<Vec<Claimable>, Error> {
        let rows = sqlx::query(
            "with recursive queue as (
               (select tenant_id from session_run where phase = 1 order by tenant_id limit 1)
               union all
               select next.* from queue cross join lateral (
                 select tenant_id from session_run where phase = 1 and tenant_id > queue.tenant_id
                  order by tenant_id limit 1) next)
             select queue.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight
               from queue join tenant t on t.id = queue.tenant_id
              cross join lateral (
                 select count(*) as running from session_run where phase = 2 and tenant_id = queue.tenant_id) b
              cross join lateral (
                 select session_id, class, attempts, queued_at,
                        b.running + row_number() over (order by class, queued_at nulls first) as nth
                   from session_run where phase = 1 and tenant_id = queue.tenant_id
                  order by class, queued_at nulls first
                  limit least(greatest(t.running_max - b.running, 0), $1)) r
              order by r.nth::float8 / greatest(t.weight, 1), r.class, r.queued_at nulls first limit $1",
        )
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(claimable).collect()
    }

    /// Lists all runnable sessions in pages, the longest waiting first, with the cursor for the next page; `None` after
    /// the last one: what a wiped Redis must be told.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_queued(
        &self,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<(Vec<Claimable>, Option<Cursor>), Error> {
        let (queued_us, tenant, session) = after.map_or((-1, Uuid::nil(), ""), |cursor| {
            (cursor.queued_us, cursor.place.tenant.0, cursor.place.session.as_str())
        });
        let rows = sqlx::query(
            "select r.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight, q.queued_us
               from session_run r join tenant t on t.id = r.tenant_id
              cross join lateral (
                select coalesce((extract(epoch from r.queued_at) * 1000000)::bigint, 0) as queued_us) q
              where r.phase = 1 and (q.queued_us, r.tenant_id, r.session_id) > ($1, $2, $3)
              order by q.queued_us, r.tenant_id, r.session_id limit $4",
        )
        .bind(queued_us)
        .bind(tenant)
        .bind(session)
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        let cursor = match rows.last() {
            Some(row) => Some(Cursor { queued_us: row.try_get("queued_us")?, place: place(row)? }),
            None => None,
        };
        Ok((rows.iter().map(claimable).collect::<Result<_, _>>()?, cursor))
    }

    /// Lists sessions whose worker is dead by the database's clock. In any order, another one each time: those that no
    /// worker takes, because they are suspects, must not hide the others.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_orphaned(&self, limit: i64) -> Result<Vec<Claimable>, Error> {
        let sql = guarded(
            "select r.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight
               from session_run r join tenant t on t.id = r.tenant_id left join worker w on w.incarnation = r.owner
              where r.phase = 2 and not coalesce(lease_runs(w.lease_until), false)
              order by random() limit $1",
            &[(Mutant::AliveUnchecked, " and not coalesce(lease_runs(w.lease_until), false)", "")],
        );
        let rows = sqlx::query(sql).bind(limit).fetch_all(&self.system).await?;
        rows.iter().map(claimable).collect()
    }

    /// Lists sessions that a living worker owns, with that worker, by name; the cursor is the last one: what a wiped Redis
    /// must be told.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_owned(
        &self,
        after: Option<&Place>,
        limit: i64,
    ) -> Result<Vec<(Claimable, Uuid)>, Error> {
        let (tenant, session) =
            after.map_or((Uuid::nil(), ""), |place| (place.tenant.0, place.session.as_str()));
        let rows = sqlx::query(
            "select r.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight, r.owner
               from session_run r join tenant t on t.id = r.tenant_id join worker w on w.incarnation = r.owner
              where r.phase = 2 and lease_runs(w.lease_until) and (r.tenant_id, r.session_id) > ($1, $2)
              order by r.tenant_id, r.session_id limit $3",
        )
        .bind(tenant)
        .bind(session)
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(|row| Ok((claimable(row)?, row.try_get("owner")?))).collect()
    }
}
