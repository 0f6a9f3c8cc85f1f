//! The budget of a tree of sessions: one amount at the root, for the root and all subtasks together. A tree that has spent
//! its budget is parked until a person raises it.

use crate::{
    Store, Tx,
    audit::AuditNote,
    column::parse_id,
    error::{Entity, Error},
    phase::{RUNNING, WAITING},
    rows::control_row,
    session::{
        mailbox::{Kind, Mailbox, NewInput},
        tree::family::{self, Parent},
    },
};
use domain::{
    ids::{SessionId, TenantId},
    money::UsdPicos,
};
use sqlx::{AssertSqlSafe, Row as _};

/// A budget and the amount already spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// The cost of the model calls of the root and all subtasks, deleted subtasks included.
    pub spent: UsdPicos,
    /// `None`: no limit.
    pub max: Option<UsdPicos>,
}

impl Budget {
    /// Whether the tree may begin nothing more.
    pub fn is_used_up(&self) -> bool {
        self.max.is_some_and(|max| self.spent >= max)
    }
}

impl Store {
    /// Returns the budget of the tree below `root`, the root included. Money stays spent when a subtask is deleted.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_budget(&self, tenant: TenantId, root: &SessionId) -> Result<Budget, Error> {
        let query = sqlx::query(
            "select s.budget_usd_picos as max,
                    (select coalesce(sum(l.cost_usd_picos), 0)::bigint from ledger l where l.tenant_id = $1 and l.root_id = $2) as spent
               from session s where s.tenant_id = $1 and s.id = $2",
        )
        .bind(tenant.0)
        .bind(root.as_str());
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        let row = row.ok_or(Error::NotFound(Entity::Session))?;
        let max: Option<i64> = row.try_get("max")?;
        Ok(Budget { spent: UsdPicos(row.try_get("spent")?), max: max.map(UsdPicos) })
    }

    /// Returns what the model calls of one session cost, without those of its subtasks.
    ///
    /// # Errors
    /// `Db`.
    pub async fn get_session_spent(&self, tenant: TenantId, session: &SessionId) -> Result<UsdPicos, Error> {
        let query = sqlx::query(
            "select coalesce(sum(cost_usd_picos), 0)::bigint as spent from ledger where tenant_id = $1 and session_id = $2",
        )
        .bind(tenant.0)
        .bind(session.as_str());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let spent = rows.first().map(|row| row.try_get("spent")).transpose()?;
        Ok(UsdPicos(spent.unwrap_or_default()))
    }

    /// Sets the budget of the tree below `root`, and wakes the sessions that wait for it. `dedupe` names the change: a repeated
    /// change wakes no session twice. Returns the sessions that the caller must nudge.
    ///
    /// # Errors
    /// `NotFound`, also for a subtask; `Db`.
    pub async fn set_budget(
        &self,
        tenant: TenantId,
        root: &SessionId,
        max: Option<UsdPicos>,
        dedupe: &str,
    ) -> Result<Vec<SessionId>, Error> {
        let mut tx = self.begin(tenant).await?;
        control_row::lock(&mut tx, tenant, root).await?;
        family::lock_tree(&mut tx, tenant, root).await?;
        let result = sqlx::query(
            "update session set budget_usd_picos = $3 where tenant_id = $1 and id = $2 and root_id is null",
        )
        .bind(tenant.0)
        .bind(root.as_str())
        .bind(max.map(|max| max.0))
        .execute(&mut *tx)
        .await?;
        if result.rows_affected() == 0 {
            return Err(Error::NotFound(Entity::Session));
        }
        let object = match max {
            Some(max) => format!("{root} {} picodollars", max.0),
            None => format!("{root} without a limit"),
        };
        self.note(&mut tx, AuditNote::of(tenant, "budget.update", &object)).await?;
        // A running session may be about to park; a runnable one reads the new budget when it starts.
        let sql = format!(
            "select s.id from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id
              where s.tenant_id = $1 and (s.id = $2 or s.root_id = $2)
                and (r.phase = {RUNNING} or r.phase = {WAITING} and r.waiting_reason = 'budget') order by s.depth"
        );
        let rows =
            sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(root.as_str()).fetch_all(&mut *tx).await?;
        let mut woken = vec![];
        for row in rows {
            let session: SessionId = parse_id("session", row.try_get("id")?)?;
            let run = control_row::lock(&mut tx, tenant, &session).await?;
            put(&mut tx, &Mailbox { tenant, session: &session, run: &run }, dedupe).await?;
            woken.push(session);
        }
        tx.commit().await?;
        Ok(woken)
    }
}

/// Tells a parent that its child ran out of budget, once for each `dedupe`. An idle parent is not told.
///
/// # Errors
/// `Db`.
pub(crate) async fn notify_parent(
    tx: &mut Tx,
    tenant: TenantId,
    parent: &Parent,
    dedupe: &str,
) -> Result<(), Error> {
    if parent.run.is_idle() {
        return Ok(());
    }
    put(tx, &parent.mailbox(tenant), dedupe).await
}

async fn put(tx: &mut Tx, mailbox: &Mailbox<'_>, dedupe: &str) -> Result<(), Error> {
    mailbox.put(tx, NewInput::new(Kind::Budget, dedupe)).await
}
