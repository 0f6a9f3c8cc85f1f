//! Workers: their leases, their capabilities, and the sessions that they own.

use super::candidate::{SessionRef, session_ref};
use crate::{
    Store,
    column::{timestamp, unsigned},
    error::Error,
    phase::RUNNING,
};
use domain::{ids::Timestamp, limits, model::Facts, policy::tool, session::Class};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow, types::Json};
use std::sync::Arc;
use uuid::Uuid;

#[derive(Debug, Clone)]
pub struct Heartbeat {
    pub incarnation: Uuid,
    pub name: String,
    /// Maximum concurrent loops.
    pub slots: u32,
    /// Whether it takes no further sessions.
    pub draining: bool,
    /// Its capabilities; `None`: unchanged since an earlier heartbeat.
    pub capabilities: Option<Arc<Capabilities>>,
}

/// The models and tools of a worker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Capabilities {
    /// The models that it can call.
    pub models: Vec<Facts>,
    pub tools: Vec<tool::Spec>,
}

/// A session that a worker owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedSession {
    pub target: SessionRef,
    /// The epoch: the number of the takeover.
    pub epoch: u64,
    pub class: Class,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The database's clock.
    pub now: Timestamp,
    /// Sessions that it owns and that have an untaken abort.
    pub aborts: Vec<SessionRef>,
    /// Whether an operator asks it to hand over its sessions.
    pub drain_asked: bool,
}

/// Living workers and their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capacity {
    /// Workers that have a valid lease and accept sessions.
    pub workers: u64,
    pub slots: u64,
    /// Running loops of all tenants.
    pub running: u64,
}

impl Store {
    /// Renews the lease of a worker. The first call registers the worker.
    ///
    /// # Errors
    /// `Db`: the lease may expire soon.
    pub async fn renew_worker(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply, Error> {
        let row = sqlx::query(
            "insert into worker (incarnation, name, lease_until, draining, slots, version, models, tools)
             values ($1, $2, now() + $3 * interval '1 millisecond', $4, $5, $6, coalesce($7, '[]'::jsonb),
                     coalesce($8, '[]'::jsonb))
             on conflict (incarnation) do update set lease_until = excluded.lease_until,
               draining = excluded.draining, models = coalesce($7, worker.models), tools = coalesce($8, worker.tools)
             returning drain_asked, clock_timestamp() as now",
        )
        .bind(heartbeat.incarnation)
        .bind(&heartbeat.name)
        .bind(i32::try_from(limits::LEASE_TTL_MS).unwrap_or(i32::MAX))
        .bind(heartbeat.draining)
        .bind(i32::try_from(heartbeat.slots).unwrap_or(i32::MAX))
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(heartbeat.capabilities.as_ref().map(|it| Json(&it.models)))
        .bind(heartbeat.capabilities.as_ref().map(|it| Json(&it.tools)))
        .fetch_one(&self.system)
        .await?;
        let aborted = sqlx::query(AssertSqlSafe(format!(
            "select tenant_id, session_id from session_run where phase = {RUNNING} and owner = $1 and cancel_seq > input_ack")))
        .bind(heartbeat.incarnation)
        .fetch_all(&self.system)
        .await?;
        Ok(HeartbeatReply {
            now: timestamp(row.try_get("now")?),
            aborts: aborted.iter().map(session_ref).collect::<Result<_, _>>()?,
            drain_asked: row.try_get("drain_asked")?,
        })
    }

    /// Lists the models that living workers can call, each once. The worker that has lived longest comes first.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_models(&self) -> Result<Vec<Facts>, Error> {
        let rows = sqlx::query(
            "select models from worker where lease_runs(lease_until) order by lease_until - started_at desc",
        )
        .fetch_all(&self.system)
        .await?;
        let mut all: Vec<Facts> = vec![];
        for row in rows {
            let models =
                row.try_get::<Json<Vec<Facts>>, _>("models").map_err(|e| Error::unreadable("models", e))?.0;
            let is_new = |facts: &Facts| !all.iter().any(|known| known.model == facts.model);
            let new: Vec<Facts> = models.into_iter().filter(is_new).collect();
            all.extend(new);
        }
        Ok(all)
    }

    /// Lists the tools of the newest living worker that reported any; old versions report none. Empty: no worker
    /// reported any.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_tools(&self) -> Result<Vec<tool::Spec>, Error> {
        let row = sqlx::query(
            "select tools from worker where lease_runs(lease_until) and tools <> '[]' order by started_at desc limit 1",
        )
        .fetch_optional(&self.system)
        .await?;
        let Some(row) = row else { return Ok(vec![]) };
        Ok(row.try_get::<Json<Vec<tool::Spec>>, _>("tools").map_err(|e| Error::unreadable("tools", e))?.0)
    }

    /// Lists the sessions that a worker owns: at most as many as its slots, plus those that it took only to close an
    /// abort.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_held(&self, incarnation: Uuid) -> Result<Vec<OwnedSession>, Error> {
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select tenant_id, session_id, epoch, class from session_run where phase = {RUNNING} and owner = $1")))
        .bind(incarnation)
        .fetch_all(&self.system)
        .await?;
        let owned = |row| {
            let epoch = unsigned(PgRow::try_get(row, "epoch")?);
            Ok(OwnedSession {
                target: session_ref(row)?,
                epoch,
                class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
            })
        };
        rows.iter().map(owned).collect()
    }

    /// Ends the lease of a worker that has no session left.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_worker(&self, incarnation: Uuid) -> Result<(), Error> {
        sqlx::query("delete from worker where incarnation = $1")
            .bind(incarnation)
            .execute(&self.system)
            .await?;
        Ok(())
    }

    /// Returns the maximum and the current number of loops of all workers together.
    ///
    /// # Errors
    /// `Db`.
    pub async fn get_capacity(&self) -> Result<Capacity, Error> {
        let row = sqlx::query(AssertSqlSafe(format!(
            "select count(*) as workers, coalesce(sum(slots), 0)::bigint as slots,
                    (select count(*) from session_run where phase = {RUNNING}) as running
               from worker where lease_runs(lease_until) and not draining"
        )))
        .fetch_one(&self.system)
        .await?;
        let number = |column| row.try_get::<i64, _>(column).map(unsigned);
        Ok(Capacity { workers: number("workers")?, slots: number("slots")?, running: number("running")? })
    }
}
