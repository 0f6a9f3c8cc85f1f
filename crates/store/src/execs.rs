//! Tool calls whose effect may have begun: the intent is stored before the effect starts.

use crate::{Store, error::Error, signed, unsigned};
use domain::ids::{SessionId, TenantId};
use sqlx::Row as _;

/// What is known of an effect that was begun before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The loop that began it first.
    pub epoch: u64,
    /// Whether this call began it.
    pub fresh: bool,
}

impl Store {
    /// Stores that an effect is about to begin, or gives who began it before.
    ///
    /// # Errors
    /// `Fenced` if another worker owns the session; `Db`.
    pub async fn begin_exec(
        &self,
        tenant: TenantId,
        session: &SessionId,
        epoch: u64,
        exec: (&str, &str),
    ) -> Result<Begun, Error> {
        let (exec_id, tool) = exec;
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "with fence as (select 1 from session_run where tenant_id = $1 and session_id = $2 and epoch = $3 for share)
             insert into tool_exec (tenant_id, session_id, exec_id, tool, epoch, state)
             select $1, $2, $4, $5, $3, 'executing' from fence on conflict do nothing returning epoch",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(epoch))
        .bind(exec_id)
        .bind(tool)
        .fetch_optional(&mut *tx)
        .await?;
        if row.is_some() {
            tx.commit().await?;
            return Ok(Begun { epoch, fresh: true });
        }
        let row = sqlx::query(
            "select e.epoch from tool_exec e join session_run r on r.tenant_id = e.tenant_id and r.session_id = e.session_id
              where e.tenant_id = $1 and e.session_id = $2 and e.exec_id = $3 and r.epoch = $4",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(exec_id)
        .bind(signed(epoch))
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(Error::Fenced)?;
        Ok(Begun { epoch: unsigned(row.try_get("epoch")?), fresh: false })
    }

    /// Marks an effect as over.
    ///
    /// # Errors
    /// `Db`.
    pub async fn end_exec(&self, tenant: TenantId, session: &SessionId, exec_id: &str) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        sqlx::query(
            "update tool_exec set state = 'done', ended_at = now()
              where tenant_id = $1 and session_id = $2 and exec_id = $3 and state = 'executing'",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(exec_id)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }
}
