//! Tool calls whose effect may have begun: a row stands from the write that says "running", before the effect starts,
//! and is closed by the write that stores the answer. An exec is named by the part of its call.

use crate::{error::Error, log::record::Scope, signed};
use domain::part::{Body, Part, ToolState};
use sqlx::{Postgres, Transaction};

/// Keeps the row of a tool call in step with its part; other parts have none.
pub(crate) async fn project(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    part: &Part,
) -> Result<(), Error> {
    let Body::Tool(tool) = &part.body else { return Ok(()) };
    let query = match &tool.state {
        ToolState::Pending { .. } => return Ok(()),
        // A call that another loop began stays that loop's.
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
