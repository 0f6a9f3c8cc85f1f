//! Tool calls whose effect may have begun. The write that stores "running" inserts the row, before the effect starts; the
//! write that stores the result closes it. An exec has the id of its call's part.

use crate::{Tx, error::Error, log::change::Scope};
use domain::conversation::part::{Part, ToolState};

/// The tool of the call that a part begins, if it begins one.
pub(super) fn begun_tool(part: &Part) -> Option<String> {
    let tool = part.body.as_tool()?;
    matches!(tool.state, ToolState::Running { .. }).then(|| tool.tool.clone())
}

/// Whether a part is a call that is over.
pub(super) fn is_over(part: &Part) -> bool {
    part.body.as_tool().is_some_and(|tool| match &tool.state {
        ToolState::Pending { .. } | ToolState::Running { .. } => false,
        ToolState::Completed { .. } | ToolState::Error { .. } => true,
    })
}

/// Closes the row of a call that is over. Other parts have none. A statement for each, so that Postgres finds the row by its whole key whatever it
/// knows of the table.
pub(super) async fn end(tx: &mut Tx, scope: &Scope<'_>, part: &Part) -> Result<(), Error> {
    if !is_over(part) {
        return Ok(());
    }
    sqlx::query(
        "update tool_exec set state = 'done', ended_at = now()
          where tenant_id = $1 and session_id = $2 and exec_id = $3 and state = 'executing'",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(part.id.as_str())
    .execute(&mut **tx)
    .await?;
    Ok(())
}
