//! The writes of all sessions of a tenant, for event streams over all of them. Event positions belong to one session, so such
//! a stream follows transactions instead: the writes of all transactions that had ended by some moment are complete, and
//! nothing can be added to them later.

use crate::{
    Store,
    column::{parse_id, unsigned},
    error::Error,
    phase::{RUNNABLE, RUNNING, WAITING},
    rows::{
        control_row::EXISTS,
        session_row::{self, DIRECTORY},
    },
    tenant::worktrees::SessionArea,
};
use domain::{
    event::Status,
    ids::{ProjectId, SessionId, TenantId, Timestamp, WorktreeId},
};
use serde::Deserialize;
use sqlx::{AssertSqlSafe, Row as _};

/// A moment in the order of transactions: every transaction before it has ended. Moments only grow.
pub type Horizon = u64;

/// A session with new events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedEntry {
    pub session: SessionId,
    pub project: ProjectId,
    /// The name by which clients know where it works: the directory of its worktree, or else the name of its project.
    pub directory: String,
    /// Position of the newest event.
    pub seq: u64,
}

impl Store {
    /// Returns the sessions with events from transactions since `since`, and the moment of the answer. A caller that continues
    /// from that moment misses no event, and may see some twice.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_written(
        &self,
        tenant: TenantId,
        since: Horizon,
    ) -> Result<(Horizon, Vec<FeedEntry>), Error> {
        // One statement sees one snapshot, so the rows and the moment are consistent.
        let query = sqlx::query(AssertSqlSafe(format!(
            "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint as horizon, w.session_id, w.project_id, w.directory, w.seq
               from (select 1) one left join lateral (
                 select e.session_id, o.project_id, o.directory, e.seq
                   from (select session_id, max(seq) as seq from session_event
                          where tenant_id = $1 and xid >= $2::text::xid8 group by session_id) e
                  cross join lateral (
                    select s.project_id, {DIRECTORY} as directory from session s
                     where s.tenant_id = $1 and s.id = e.session_id limit 1) o) w on true"
        )))
        .bind(tenant.0)
        .bind(since.to_string());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let (mut horizon, mut written) = (since, vec![]);
        for row in rows {
            horizon = unsigned(row.try_get("horizon")?);
            let Some(session) = row.try_get::<Option<&str>, _>("session_id")? else { continue };
            let (session, project) =
                (parse_id("session", session)?, parse_id("session", row.try_get("project_id")?)?);
            let directory = row.try_get("directory")?;
            written.push(FeedEntry { session, project, directory, seq: unsigned(row.try_get("seq")?) });
        }
        Ok((horizon, written))
    }

    /// Returns the position of the first event that a session wrote in transactions since `since`.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_first_since(
        &self,
        tenant: TenantId,
        session: &SessionId,
        since: Horizon,
    ) -> Result<Option<u64>, Error> {
        let query = sqlx::query(AssertSqlSafe(format!(
            "select min(seq) as seq from session_event
              where tenant_id = $1 and session_id = $2 and xid >= $3::text::xid8 and {EXISTS}"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(since.to_string());
        let row = self.statements(tenant).await?.fetch_one(query).await?;
        Ok(row.try_get::<Option<i64>, _>("seq")?.map(unsigned))
    }

    /// Lists the sessions of a directory, or of the tenant, that have work or changed recently, newest first.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_recent(
        &self,
        tenant: TenantId,
        area: Option<&SessionArea>,
        window: Window,
    ) -> Result<Vec<RecentSession>, Error> {
        let active = format!("r.phase in ({RUNNABLE}, {RUNNING}, {WAITING})");
        let in_area = session_row::in_area(area, "$5");
        // Each half of the list has its index, and `limit 1` makes Postgres look up each session of the list: it does not know how few they are.
        let query = sqlx::query(AssertSqlSafe(format!(
            "with found as (
               (select s.id from session s
                 where s.tenant_id = $1 and {in_area} and s.updated_at >= to_timestamp($3::bigint / 1000.0)
                 order by s.updated_at desc, s.id desc limit $4)
               union
               select r.session_id from session_run r where r.tenant_id = $1 and {active})
             select l.id, l.event_seq, l.is_active, l.retry from found f cross join lateral (
               select s.id, s.updated_at, r.event_seq, {active} as is_active,
                      case when r.waiting_reason = 'back_off' then
                        (select e.properties from session_event e
                          where e.tenant_id = s.tenant_id and e.session_id = s.id and e.kind = 'session.status'
                          order by e.seq desc limit 1) end as retry
                 from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id
                where s.tenant_id = $1 and s.id = f.id and {in_area} limit 1) l
              order by l.updated_at desc, l.id desc limit $4"
        )))
        .bind(tenant.0)
        .bind(area.map(|area| area.project.as_str()))
        .bind(window.since.map(|since| since.0))
        .bind(i64::from(window.limit))
        .bind(area.and_then(|area| area.worktree.as_ref()).map(WorktreeId::as_str));
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let recent = |row: &sqlx::postgres::PgRow| {
            Ok(RecentSession {
                session: parse_id("session", row.try_get("id")?)?,
                head: unsigned(row.try_get("event_seq")?),
                status: status(row.try_get("is_active")?, row.try_get("retry")?),
            })
        };
        rows.iter().map(recent).collect()
    }
}

/// The range of [`Store::list_recent`].
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// The earliest time of change; `None`: only sessions that have work.
    pub since: Option<Timestamp>,
    /// Maximum number of sessions.
    pub limit: u32,
}

/// A session that clients probably show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentSession {
    pub session: SessionId,
    /// The position of its newest event.
    pub head: u64,
    /// Busy: it runs, waits for a worker, or waits for something else.
    pub status: Status,
}

/// The status of a session. `back_off` has the properties of the last `session.status` of a session that waits to call the model
/// again.
fn status(is_active: bool, back_off: Option<&str>) -> Status {
    #[derive(Deserialize)]
    struct Properties {
        status: Status,
    }
    let retry = back_off.and_then(|text| serde_json::from_str::<Properties>(text).ok());
    match retry {
        Some(Properties { status }) => status,
        None if is_active => Status::Busy,
        None => Status::Idle,
    }
}
