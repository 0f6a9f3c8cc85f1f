//! What a tree of sessions may spend: one amount at its root, for the root and all subtasks together. A tree that used it
//! up is parked until somebody raises it.

use crate::{
    Store,
    error::{Entity, Error},
    parsed,
    session::{
        children::{self, Parent},
        inputs, sessions,
    },
    signed,
};
use domain::{
    ids::{SessionId, TenantId},
    money::{Tokens, UsdPicos},
    session::Info,
};
use sqlx::{Postgres, Row as _, Transaction};

/// What was spent, and what may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// By the root and all subtasks below it, in steps that are closed.
    pub spent: UsdPicos,
    /// `None`: no limit.
    pub max: Option<UsdPicos>,
}

impl Budget {
    /// Whether nothing more may be begun.
    pub fn is_used_up(&self) -> bool {
        self.max.is_some_and(|max| self.spent >= max)
    }
}

impl Store {
    /// Gives the budget of the tree below `root`, the root included.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_budget(&self, tenant: TenantId, root: &SessionId) -> Result<Budget, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "select s.budget_usd_picos as max, (select sum(t.cost_usd_picos)::bigint from session t
                     where t.tenant_id = s.tenant_id and (t.id = s.id or t.root_id = s.id)) as spent
               from session s where s.tenant_id = $1 and s.id = $2",
        )
        .bind(tenant.0)
        .bind(root.as_str())
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(Error::NotFound(Entity::Session))?;
        let max: Option<i64> = row.try_get("max")?;
        Ok(Budget { spent: UsdPicos(row.try_get("spent")?), max: max.map(UsdPicos) })
    }

    /// Sets what the tree below `root` may spend, and wakes what waits for it. `dedupe` names the change: a repeated one
    /// wakes nobody twice. Gives the sessions that must be told.
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
        inputs::lock(&mut tx, tenant, root).await?;
        children::lock_tree(&mut tx, tenant, root).await?;
        let set = sqlx::query(
            "update session set budget_usd_picos = $3 where tenant_id = $1 and id = $2 and root_id is null",
        )
        .bind(tenant.0)
        .bind(root.as_str())
        .bind(max.map(|max| max.0))
        .execute(&mut *tx)
        .await?;
        if set.rows_affected() == 0 {
            return Err(Error::NotFound(Entity::Session));
        }
        // Who runs may be about to park; who is runnable has not looked yet.
        let rows = sqlx::query(
            "select s.id from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id
              where s.tenant_id = $1 and (s.id = $2 or s.root_id = $2)
                and (r.phase = 2 or r.phase = 3 and r.waiting_reason = 'budget') order by s.depth",
        )
        .bind(tenant.0)
        .bind(root.as_str())
        .fetch_all(&mut *tx)
        .await?;
        let mut told = vec![];
        for row in rows {
            let session: SessionId = parsed(row.try_get("id")?)?;
            let run = inputs::lock(&mut tx, tenant, &session).await?;
            inputs::put(&mut tx, tenant, (&session, &run), (inputs::Kind::Budget, dedupe, None)).await?;
            told.push(session);
        }
        tx.commit().await?;
        Ok(told)
    }
}

/// Tells a parent that its child ran out of budget, once for each `dedupe`. One that does nothing needs not know.
pub(crate) async fn tell(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    parent: &Parent,
    dedupe: &str,
) -> Result<(), Error> {
    if parent.run.is_idle() {
        return Ok(());
    }
    inputs::put(tx, tenant, (&parent.session, &parent.run), (inputs::Kind::Budget, dedupe, None)).await
}

/// Adds to what a session spent, and gives it as it is then.
pub(crate) async fn spend(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    id: &SessionId,
    (tokens, cost): (Tokens, UsdPicos),
) -> Result<Info, Error> {
    sqlx::query(
        "update session set input_tokens = input_tokens + $3, output_tokens = output_tokens + $4,
                reasoning_tokens = reasoning_tokens + $5, cache_read_tokens = cache_read_tokens + $6,
                cache_write_tokens = cache_write_tokens + $7, cost_usd_picos = cost_usd_picos + $8, updated_at = date_trunc('milliseconds', now())
          where tenant_id = $1 and id = $2",
    )
    .bind(tenant.0)
    .bind(id.as_str())
    .bind(signed(tokens.input))
    .bind(signed(tokens.output))
    .bind(signed(tokens.reasoning))
    .bind(signed(tokens.cache_read))
    .bind(signed(tokens.cache_write))
    .bind(cost.0)
    .execute(&mut **tx)
    .await?;
    Ok(sessions::read(tx, tenant, id).await?.info)
}
