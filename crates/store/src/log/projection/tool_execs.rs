//! Tool calls whose effect may have begun. The write that stores "running" inserts the row, before the effect starts; the
//! write that stores the result closes it. An exec has the id of its call's part.

use crate::{Tx, column::signed, error::Error, log::change::Scope};
use domain::conversation::part::{Body, Part, ToolState};

/// Synchronizes the row of a tool call with its part. Other parts have no row.
pub(crate) async fn update(tx: &mut Tx, scope: &Scope<'_>, part: &Part) -> Result<(), Error> {
    let Body::Tool(tool) = &part.body else { return Ok(()) };
    let query = match &tool.state {
        ToolState::Pending { .. } => return Ok(()),
        // A call that an earlier loop began keeps the epoch of that loop.
        ToolState::Running { .. } => sqlx::query(
            "insert into tool_exec (tenant_id, session_id, exec_id, tool, epoch, state)
             values ($1, $2, $3, $4, $5, 'executing') on conflict do nothing",
        )
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(part.id.as_str())
        .bind(&tool.tool)
        .bind(signed(scope.epoch)),
        ToolState::Completed { .. } | ToolState::Error { .. } => sqlx::query(
            "update tool_exec set state = 'done', ended_at = now()
              where tenant_id = $1 and session_id = $2 and exec_id = $3 and state = 'executing'",
        )
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(part.id.as_str()),
    };
    query.execute(&mut **tx).await?;
    Ok(())
}
