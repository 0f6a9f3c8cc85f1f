//! The rows of messages and parts.

use crate::{Tx, column::signed, error::Error, log::change::Scope};
use domain::{
    conversation::{message::Message, part::Part},
    ids::{MessageId, PartId},
};
use serde_json::value::to_raw_value;
use sqlx::types::Json;

/// Writes a message. It keeps the position of its first event.
pub(crate) async fn upsert_message(
    tx: &mut Tx,
    scope: &Scope<'_>,
    message: &Message,
    seq: u64,
) -> Result<(), Error> {
    sqlx::query(
        "insert into message (tenant_id, session_id, id, seq, role, info) values ($1, $2, $3, $4, $5, $6)
         on conflict (tenant_id, session_id, id) do update set info = excluded.info",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(message.id().as_str())
    .bind(signed(seq))
    .bind(message.role())
    .bind(Json(message))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes a part. It keeps the position of its first event.
pub(crate) async fn upsert_part(tx: &mut Tx, scope: &Scope<'_>, part: &Part, seq: u64) -> Result<(), Error> {
    let data = to_raw_value(part).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query(
        "insert into part (tenant_id, session_id, message_id, id, seq, kind, data, size_bytes)
         values ($1, $2, $3, $4, $5, $6, $7, $8)
         on conflict (tenant_id, session_id, message_id, id) do update
            set kind = excluded.kind, data = excluded.data, size_bytes = excluded.size_bytes",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(part.message_id.as_str())
    .bind(part.id.as_str())
    .bind(signed(seq))
    .bind(part.body.kind())
    .bind(Json(&data))
    .bind(i32::try_from(data.get().len()).unwrap_or(i32::MAX))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

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

/// Deletes a part.
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
