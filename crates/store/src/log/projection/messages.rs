//! Messages and parts that a session loses.

use crate::{Tx, error::Error, log::change::Scope};
use domain::ids::{MessageId, PartId};

/// Deletes a message with its parts.
pub(crate) async fn delete_message(tx: &mut Tx, scope: &Scope<'_>, id: &MessageId) -> Result<(), Error> {
    sqlx::query("delete from message where tenant_id = $1 and session_id = $2 and id = $3")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

pub(crate) async fn delete_part(
    tx: &mut Tx,
    scope: &Scope<'_>,
    message_id: &MessageId,
    id: &PartId,
) -> Result<(), Error> {
    sqlx::query("delete from part where tenant_id = $1 and session_id = $2 and message_id = $3 and id = $4")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(message_id.as_str())
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(())
}
