//! The operator's view and actions, across all tenants.

use crate::{
    Page, Store,
    audit::AuditNote,
    column::{parse_id, timestamp, unsigned},
    error::Error,
    phase::{self, IDLE, QUARANTINED, RUNNABLE, RUNNING, WAITING},
};
use domain::{
    ids::{SessionId, TenantId, Timestamp},
    session::{Class, Phase},
};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow, types::time::OffsetDateTime};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Upper bound for the number of worker versions that run at the same time. Further ones are not listed.
const VERSIONS_MAX: i64 = 100;
/// Tenants that an answer about an ambiguous session lists. Further ones are not listed.
const OWNERS_MAX: i64 = 10;

/// The sessions of one tenant and class, counted by phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLine {
    pub tenant: TenantId,
    pub name: String,
    pub class: Class,
    /// Sessions that wait for a worker.
    pub runnable: u64,
    /// When the oldest of them began to wait.
    pub oldest_queued_at: Option<Timestamp>,
    /// Loops that run.
    pub running: u64,
    /// Sessions that wait for something other than a worker.
    pub waiting: u64,
    pub quarantined: u64,
    /// Maximum concurrent loops of the tenant.
    pub running_max: u32,
    /// The tenant's share of the slots.
    pub weight: u32,
}

/// A worker that has or had a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    pub incarnation: Uuid,
    pub name: String,
    pub version: String,
    pub started_at: Timestamp,
    /// Milliseconds until its lease ends by the database's clock; negative: it is dead.
    pub lease_ms: i64,
    /// Whether it is draining: it hands over its sessions.
    pub draining: bool,
    /// Maximum concurrent loops.
    pub slots: u32,
    /// Loops that it owns.
    pub running: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    pub tenant: TenantId,
    pub session: SessionId,
    pub phase: Phase,
    pub class: Class,
    /// The name of its worker.
    pub owner: Option<String>,
    /// When that worker took it.
    pub owned_at: Option<Timestamp>,
    pub queued_at: Option<Timestamp>,
    /// The epoch: the number of the newest takeover.
    pub epoch: u64,
    /// Takeovers since the last progress.
    pub attempts: i16,
    pub waiting_reason: Option<String>,
    /// Details of the wait, in one sentence.
    pub waiting_detail: Option<String>,
    /// When it began to wait for something other than a worker, or was quarantined.
    pub waiting_at: Option<Timestamp>,
}

/// A tenant that has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub tenant: TenantId,
    pub name: String,
}

/// The numbers for the metrics.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Survey {
    /// By class, the most urgent first.
    pub classes: Vec<ClassSurvey>,
    /// Loops that run.
    pub running: f64,
    /// Sessions that wait for something other than a worker.
    pub waiting: f64,
    pub quarantined: f64,
    /// Sessions whose worker is dead.
    pub orphaned: f64,
    /// Workers with a valid lease.
    pub workers: f64,
    pub slots: f64,
}

/// The queue of one class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassSurvey {
    pub class: Class,
    /// Sessions that wait for a worker.
    pub runnable: f64,
    /// Seconds that the oldest of them has waited; 0 if none waits.
    pub oldest_seconds: f64,
}

impl Store {
    /// Counts the sessions for metrics. A class without work is in the result too, so that its gauges return to 0.
    ///
    /// # Errors
    /// `Db`.
    pub async fn survey(&self) -> Result<Survey, Error> {
        let row = sqlx::query(AssertSqlSafe(format!(
            "select count(*) filter (where r.phase = {RUNNING})::float8 as running,
                    count(*) filter (where r.phase = {WAITING})::float8 as waiting,
                    count(*) filter (where r.phase = {QUARANTINED})::float8 as quarantined,
                    count(*) filter (where r.phase = {RUNNING} and not coalesce(lease_runs(w.lease_until), false))::float8 as orphaned,
                    (select count(*)::float8 from worker where lease_runs(lease_until)) as workers,
                    (select coalesce(sum(slots), 0)::float8 from worker where lease_runs(lease_until)) as slots
               from session_run r left join worker w on w.incarnation = r.owner
              where r.phase in ({RUNNABLE}, {RUNNING}, {WAITING}, {QUARANTINED})")))
        .fetch_one(&self.system)
        .await?;
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select class, count(*)::float8 as runnable,
                    coalesce(extract(epoch from now() - min(queued_at))::float8, 0) as oldest
               from session_run where phase = {RUNNABLE} group by class"
        )))
        .fetch_all(&self.system)
        .await?;
        let mut classes: Vec<ClassSurvey> =
            Class::ALL.map(|class| ClassSurvey { class, runnable: 0.0, oldest_seconds: 0.0 }).into();
        for found in &rows {
            let of = class(found)?;
            for survey in classes.iter_mut().filter(|survey| survey.class == of) {
                survey.runnable = found.try_get("runnable")?;
                survey.oldest_seconds = found.try_get("oldest")?;
            }
        }
        Ok(Survey {
            classes,
            running: row.try_get("running")?,
            waiting: row.try_get("waiting")?,
            quarantined: row.try_get("quarantined")?,
            orphaned: row.try_get("orphaned")?,
            workers: row.try_get("workers")?,
            slots: row.try_get("slots")?,
        })
    }

    /// Lists the sessions that are not idle, counted by tenant and class; the cursor is the last tenant's name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_queue(&self, page: &Page) -> Result<Vec<QueueLine>, Error> {
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select t.id, t.name, t.running_max, t.weight, r.class,
                    count(*) filter (where r.phase = {RUNNABLE}) as runnable,
                    min(r.queued_at) filter (where r.phase = {RUNNABLE}) as oldest,
                    count(*) filter (where r.phase = {RUNNING}) as running,
                    count(*) filter (where r.phase = {WAITING}) as waiting,
                    count(*) filter (where r.phase = {QUARANTINED}) as quarantined
               from (select id, name, running_max, weight from tenant where name > $1
                        and exists (select 1 from session_run x where x.tenant_id = tenant.id and x.phase <> {IDLE})
                      order by name limit $2) t
               join session_run r on r.tenant_id = t.id and r.phase in ({RUNNABLE}, {RUNNING}, {WAITING}, {QUARANTINED})
              group by t.id, t.name, t.running_max, t.weight, r.class order by t.name, r.class")))
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(page.limit())
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(line).collect()
    }

    /// Lists workers: living before dead ones, each newest first; one page at most.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_workers(&self, page: &Page) -> Result<Vec<Worker>, Error> {
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select w.incarnation, w.name, w.version, w.started_at, w.draining, w.slots,
                    (extract(epoch from w.lease_until - now()) * 1000)::bigint as lease_ms,
                    (select count(*) from session_run r where r.phase = {RUNNING} and r.owner = w.incarnation) as running
               from worker w order by lease_runs(w.lease_until) desc, w.started_at desc, w.incarnation limit $1")))
        .bind(page.limit())
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(worker).collect()
    }

    /// Returns the versions of the living workers; at most [`VERSIONS_MAX`].
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_versions(&self) -> Result<BTreeSet<String>, Error> {
        let rows =
            sqlx::query_scalar("select distinct version from worker where lease_runs(lease_until) limit $1")
                .bind(VERSIONS_MAX)
                .fetch_all(&self.system)
                .await?;
        Ok(rows.into_iter().collect())
    }

    /// Lists control rows of one phase, the longest in that phase first; one page at most. Lists no idle sessions.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_control(&self, phase: Phase, page: &Page) -> Result<Vec<Control>, Error> {
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select r.tenant_id, r.session_id, r.phase, r.class, coalesce(w.name, r.owner::text) as owner, r.owned_at,
                    r.queued_at, r.epoch, r.attempts, r.waiting_reason, r.waiting_detail,
                    case when r.phase in ({WAITING}, {QUARANTINED}) then r.waiting_at end as waiting_at
               from session_run r left join worker w on w.incarnation = r.owner
              where r.phase = $1 and r.phase <> {IDLE} order by coalesce(case when r.phase in ({WAITING}, {QUARANTINED}) then r.waiting_at end, r.owned_at,
                    r.queued_at) nulls last, r.session_id limit $2")))
        .bind(phase.to_i16())
        .bind(page.limit())
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(control).collect()
    }

    /// Lists the tenants that have a session with this id, by name: clients choose ids, and each tenant has its own. At most
    /// [`OWNERS_MAX`].
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_owners(&self, session: &SessionId) -> Result<Vec<Owner>, Error> {
        let rows = sqlx::query(
            "select t.id, t.name from session s join tenant t on t.id = s.tenant_id where s.id = $1 order by t.name limit $2",
        )
        .bind(session.as_str())
        .bind(OWNERS_MAX)
        .fetch_all(&self.system)
        .await?;
        let owner =
            |row: &PgRow| Ok(Owner { tenant: TenantId(row.try_get("id")?), name: row.try_get("name")? });
        rows.iter().map(owner).collect()
    }

    /// Asks a worker, by its name or incarnation, to hand over its sessions and to take no more, or to take sessions again. The
    /// worker sees the request at its next heartbeat. Returns the number of living workers with that name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn ask_drain(&self, worker: &str, drain: bool) -> Result<u64, Error> {
        let mut tx = self.begin_system().await?;
        let result = sqlx::query(
            "update worker set drain_asked = $2 where (name = $1 or incarnation::text = $1) and lease_runs(lease_until)",
        )
        .bind(worker)
        .bind(drain)
        .execute(&mut *tx)
        .await?;
        if result.rows_affected() > 0 {
            let action = if drain { "worker.drain" } else { "worker.undrain" };
            self.note(&mut tx, AuditNote { tenant: None, action, object: worker }).await?;
        }
        tx.commit().await?;
        Ok(result.rows_affected())
    }
}

fn count(row: &PgRow, column: &str) -> Result<u64, Error> {
    Ok(unsigned(row.try_get(column)?))
}

fn count_u32(row: &PgRow, column: &str) -> Result<u32, Error> {
    Ok(u32::try_from(row.try_get::<i32, _>(column)?).unwrap_or(0))
}

fn time_of(row: &PgRow, column: &str) -> Result<Option<Timestamp>, Error> {
    Ok(row.try_get::<Option<OffsetDateTime>, _>(column)?.map(timestamp))
}

fn class(row: &PgRow) -> Result<Class, Error> {
    Ok(Class::from_i16(row.try_get("class")?).unwrap_or_default())
}

fn line(row: &PgRow) -> Result<QueueLine, Error> {
    Ok(QueueLine {
        tenant: TenantId(row.try_get("id")?),
        name: row.try_get("name")?,
        class: class(row)?,
        runnable: count(row, "runnable")?,
        oldest_queued_at: time_of(row, "oldest")?,
        running: count(row, "running")?,
        waiting: count(row, "waiting")?,
        quarantined: count(row, "quarantined")?,
        running_max: count_u32(row, "running_max")?,
        weight: count_u32(row, "weight")?,
    })
}

fn worker(row: &PgRow) -> Result<Worker, Error> {
    Ok(Worker {
        incarnation: row.try_get("incarnation")?,
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        started_at: timestamp(row.try_get("started_at")?),
        lease_ms: row.try_get("lease_ms")?,
        draining: row.try_get("draining")?,
        slots: count_u32(row, "slots")?,
        running: count(row, "running")?,
    })
}

fn control(row: &PgRow) -> Result<Control, Error> {
    Ok(Control {
        tenant: TenantId(row.try_get("tenant_id")?),
        session: parse_id("session", row.try_get("session_id")?)?,
        phase: phase::from_column(row.try_get("phase")?)?,
        class: class(row)?,
        owner: row.try_get("owner")?,
        owned_at: time_of(row, "owned_at")?,
        queued_at: time_of(row, "queued_at")?,
        epoch: count(row, "epoch")?,
        attempts: row.try_get("attempts")?,
        waiting_reason: row.try_get("waiting_reason")?,
        waiting_detail: row.try_get("waiting_detail")?,
        waiting_at: time_of(row, "waiting_at")?,
    })
}
