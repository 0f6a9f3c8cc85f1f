//! What all sessions of a tenant wrote, for streams over all of them. Positions of events are a session's own, so such a
//! stream goes by transactions: what those wrote that were over at a moment is complete at that moment, and nothing can be
//! added to it later.

use crate::{Store, error::Error, parsed, unsigned};
use domain::ids::{ProjectId, SessionId, TenantId, Timestamp};
use sqlx::Row as _;

/// A moment: every transaction before it is over. Grows.
pub type Horizon = u64;

/// A session that wrote something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Which.
    pub session: SessionId,
    /// Its project.
    pub project: ProjectId,
    /// What its project is called.
    pub project_name: String,
    /// Position of the newest event.
    pub seq: u64,
}

impl Store {
    /// Gives the sessions that wrote something in transactions from `since` on, and the moment of the answer: whoever asks
    /// again with that misses nothing, and may be given something twice.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_written(
        &self,
        tenant: TenantId,
        since: Horizon,
    ) -> Result<(Horizon, Vec<Written>), Error> {
        let mut tx = self.begin(tenant).await?;
        // One statement sees one snapshot: that of the rows is that of the moment.
        let rows = sqlx::query(
            "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint as horizon, w.session_id, w.project_id, w.name, w.seq
               from (select 1) one left join lateral (
                 select e.session_id, s.project_id, p.name, max(e.seq) as seq
                   from session_event e
                   join session s on s.tenant_id = e.tenant_id and s.id = e.session_id
                   join project p on p.tenant_id = s.tenant_id and p.id = s.project_id
                  where e.tenant_id = $1 and e.xid >= $2::text::xid8 group by 1, 2, 3) w on true",
        )
        .bind(tenant.0)
        .bind(since.to_string())
        .fetch_all(&mut *tx)
        .await?;
        let (mut horizon, mut written) = (since, vec![]);
        for row in rows {
            horizon = unsigned(row.try_get("horizon")?);
            let Some(session) = row.try_get::<Option<&str>, _>("session_id")? else { continue };
            let (session, project) = (parsed(session)?, parsed(row.try_get("project_id")?)?);
            let project_name = row.try_get("name")?;
            written.push(Written { session, project, project_name, seq: unsigned(row.try_get("seq")?) });
        }
        Ok((horizon, written))
    }

    /// Gives the position of the first event that a session wrote in transactions from `since` on.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_first_since(
        &self,
        tenant: TenantId,
        session: &SessionId,
        since: Horizon,
    ) -> Result<Option<u64>, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "select min(seq) as seq from session_event
              where tenant_id = $1 and session_id = $2 and xid >= $3::text::xid8",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(since.to_string())
        .fetch_one(&mut *tx)
        .await?;
        Ok(row.try_get::<Option<i64>, _>("seq")?.map(unsigned))
    }

    /// Lists the sessions of a project, or of the tenant, that work or wait for somebody, or were changed since: newest
    /// first, at most `limit`.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_recent(
        &self,
        tenant: TenantId,
        project: Option<&ProjectId>,
        (since, limit): (Option<Timestamp>, u32),
    ) -> Result<Vec<Recent>, Error> {
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(
            "select s.id, r.phase in (1, 2, 3) as is_active
               from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id
              where s.tenant_id = $1 and ($2::text is null or s.project_id = $2)
                and (r.phase in (1, 2, 3) or s.updated_at >= to_timestamp($3::bigint / 1000.0))
              order by s.updated_at desc, s.id desc limit $4",
        )
        .bind(tenant.0)
        .bind(project.map(ProjectId::as_str))
        .bind(since.map(|since| since.0))
        .bind(i64::from(limit))
        .fetch_all(&mut *tx)
        .await?;
        let recent = |row: &sqlx::postgres::PgRow| {
            Ok(Recent { session: parsed(row.try_get("id")?)?, is_active: row.try_get("is_active")? })
        };
        rows.iter().map(recent).collect()
    }
}

/// A session that clients are probably looking at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    /// Which.
    pub session: SessionId,
    /// Whether it works, waits for a worker or waits for somebody.
    pub is_active: bool,
}
