//! The sessions that need a worker, in the order in which a sweep offers them. Neither one tenant nor sessions that workers
//! refuse can push the others off a page.

use super::candidate::{Candidate, SessionRef, candidate, session_ref};
use crate::{
    Store,
    error::Error,
    phase::{RUNNABLE, RUNNING, WAITING},
};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

/// The end of a page of [`Store::list_queued`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    queued_us: i64,
    target: SessionRef,
}

impl Store {
    /// Makes at most `limit` sessions runnable whose timer has expired, longest first, and returns them. Sessions beyond the
    /// limit, and sessions that another transaction has locked, are left to the next call: a transaction that locks many rows
    /// must not wait for any of them.
    ///
    /// # Errors
    /// `Db`: woken or not; [`Store::list_runnable`] finds those that were woken.
    pub async fn wake_due(&self, limit: i64) -> Result<Vec<Candidate>, Error> {
        // Materialized: Postgres may evaluate a plain sub-select once per row, each time with different rows.
        let rows = sqlx::query(AssertSqlSafe(format!(
            "with due as materialized (
               select tenant_id, session_id from session_run where wake_at <= now() and phase = {WAITING}
                order by wake_at limit $1 for update skip locked)
             update session_run r set phase = {RUNNABLE}, wake_at = null, queued_at = now(), waiting_reason = null,
                    waiting_detail = null
               from due join tenant t on t.id = due.tenant_id
              where r.tenant_id = due.tenant_id and r.session_id = due.session_id
             returning r.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight")))
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(candidate).collect()
    }

    /// Makes at most `limit` sessions runnable whose timed wait began in the future. Somebody has set the clock back, so they
    /// would wake too late. A loop that finds nothing to do parks again. Returns the number of sessions.
    ///
    /// # Errors
    /// `Db`: woken or not.
    pub async fn wake_from_the_future(&self, limit: i64) -> Result<u64, Error> {
        let result = sqlx::query(AssertSqlSafe(format!(
            "with early as materialized (
               select tenant_id, session_id from session_run
                where wake_at is not null and phase = {WAITING} and waiting_at > now() + interval '1 minute'
                limit $1 for update skip locked)
             update session_run r set phase = {RUNNABLE}, wake_at = null, queued_at = now(), waiting_reason = null,
                    waiting_detail = null
               from early where r.tenant_id = early.tenant_id and r.session_id = early.session_id")))
        .bind(limit)
        .execute(&self.system)
        .await?;
        Ok(result.rows_affected())
    }

    /// Lists runnable sessions: the longest waiting one of each tenant and class, then the second of each, and so on;
    /// within each round the most urgent and longest waiting first. A tenant and class gets at most twice its fraction of
    /// `limit`.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_runnable(&self, limit: i64) -> Result<Vec<Candidate>, Error> {
        // Walk the index from one tenant and class to the next, and read only the first few rows of each: the cost must
        // not grow with the backlog.
        let rows = sqlx::query(AssertSqlSafe(format!(
            "with recursive lane as (
               (select tenant_id, class from session_run where phase = {RUNNABLE} order by tenant_id, class limit 1)
               union all
               select next.* from lane cross join lateral (
                 select tenant_id, class from session_run
                  where phase = {RUNNABLE} and (tenant_id, class) > (lane.tenant_id, lane.class)
                  order by tenant_id, class limit 1) next),
             part as (select greatest(2 * $1 / greatest(count(*), 1), 1) as size from lane)
             select lane.tenant_id, r.session_id, lane.class, r.attempts, t.running_max, t.weight
               from lane join tenant t on t.id = lane.tenant_id cross join part cross join lateral (
                 select session_id, attempts, queued_at, row_number() over (order by queued_at nulls first) as nth
                   from session_run where phase = {RUNNABLE} and tenant_id = lane.tenant_id and class = lane.class
                  order by queued_at nulls first limit part.size) r
              order by r.nth, lane.class, r.queued_at nulls first limit $1")))
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(candidate).collect()
    }

    /// Lists the runnable sessions that workers may take while Redis is down: for each tenant no more than its limit allows,
    /// the most urgent and longest waiting first. Tenants with the fewest running loops per weight come first. Workers that ask
    /// at the same moment get the same list, so together they seldom exceed a limit.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_takeable(&self, limit: i64) -> Result<Vec<Candidate>, Error> {
        let rows = sqlx::query(AssertSqlSafe(format!(
            "with recursive queue as (
               (select tenant_id from session_run where phase = {RUNNABLE} order by tenant_id limit 1)
               union all
               select next.* from queue cross join lateral (
                 select tenant_id from session_run where phase = {RUNNABLE} and tenant_id > queue.tenant_id
                  order by tenant_id limit 1) next)
             select queue.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight
               from queue join tenant t on t.id = queue.tenant_id
              cross join lateral (
                 select count(*) as running from session_run where phase = {RUNNING} and tenant_id = queue.tenant_id) b
              cross join lateral (
                 select session_id, class, attempts, queued_at,
                        b.running + row_number() over (order by class, queued_at nulls first) as nth
                   from session_run where phase = {RUNNABLE} and tenant_id = queue.tenant_id
                  order by class, queued_at nulls first
                  limit least(greatest(t.running_max - b.running, 0), $1)) r
              order by r.nth::float8 / greatest(t.weight, 1), r.class, r.queued_at nulls first limit $1")))
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(candidate).collect()
    }

    /// Lists all runnable sessions in pages, the longest waiting first, to refill a Redis that lost its data. Returns the cursor
    /// for the next page; `None` after the last one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_queued(
        &self,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<(Vec<Candidate>, Option<Cursor>), Error> {
        let (queued_us, tenant, session) = after.map_or((-1, Uuid::nil(), ""), |cursor| {
            (cursor.queued_us, cursor.target.tenant.0, cursor.target.session.as_str())
        });
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select r.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight, q.queued_us
               from session_run r join tenant t on t.id = r.tenant_id
              cross join lateral (
                select coalesce((extract(epoch from r.queued_at) * 1000000)::bigint, 0) as queued_us) q
              where r.phase = {RUNNABLE} and (q.queued_us, r.tenant_id, r.session_id) > ($1, $2, $3)
              order by q.queued_us, r.tenant_id, r.session_id limit $4"
        )))
        .bind(queued_us)
        .bind(tenant)
        .bind(session)
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        let cursor = match rows.last() {
            Some(row) => Some(Cursor { queued_us: row.try_get("queued_us")?, target: session_ref(row)? }),
            None => None,
        };
        Ok((rows.iter().map(candidate).collect::<Result<_, _>>()?, cursor))
    }

    /// Lists sessions whose worker is dead by the database's clock, in a random order: suspects, which most workers refuse, must
    /// not hide the others.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_orphaned(&self, limit: i64) -> Result<Vec<Candidate>, Error> {
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select r.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight
               from session_run r join tenant t on t.id = r.tenant_id left join worker w on w.incarnation = r.owner
              where r.phase = {RUNNING}
                and not coalesce(lease_runs(w.lease_until), false)
              order by random() limit $1")))
        .bind(limit).fetch_all(&self.system).await?;
        rows.iter().map(candidate).collect()
    }

    /// Lists sessions that a living worker owns, with that worker, ordered by id, to refill a Redis that lost its data. The
    /// cursor is the last session.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_owned(
        &self,
        after: Option<&SessionRef>,
        limit: i64,
    ) -> Result<Vec<(Candidate, Uuid)>, Error> {
        let (tenant, session) =
            after.map_or((Uuid::nil(), ""), |last| (last.tenant.0, last.session.as_str()));
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select r.tenant_id, r.session_id, r.class, r.attempts, t.running_max, t.weight, r.owner
               from session_run r join tenant t on t.id = r.tenant_id join worker w on w.incarnation = r.owner
              where r.phase = {RUNNING} and lease_runs(w.lease_until) and (r.tenant_id, r.session_id) > ($1, $2)
              order by r.tenant_id, r.session_id limit $3")))
        .bind(tenant)
        .bind(session)
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(|row| Ok((candidate(row)?, row.try_get("owner")?))).collect()
    }
}
