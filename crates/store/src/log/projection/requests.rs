//! The rows of requests to people, as the asking loop writes them. `people::requests` stores the answers.

use crate::{Tx, error::Error, log::change::Scope};
use domain::conversation::request::{Answer, Id, Request};
use sqlx::{Row as _, types::Json};

/// Stores a request. A loop that asks again after a crash finds its first request.
pub(crate) async fn insert(tx: &mut Tx, scope: &Scope<'_>, request: &Request) -> Result<(), Error> {
    sqlx::query(
        "insert into request (tenant_id, session_id, id, message_id, part_id, call_id, asked, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, to_timestamp($8::float8 / 1000)) on conflict do nothing",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(request.id.as_str())
    .bind(request.message_id.as_str())
    .bind(request.part_id.as_str())
    .bind(&request.call_id)
    .bind(Json(&request.body))
    .bind(request.expires_at.map(|at| at.0))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Closes a request that its loop no longer needs. Returns the answer that counts, which is the first one.
pub(crate) async fn close(tx: &mut Tx, scope: &Scope<'_>, id: &Id, answer: &Answer) -> Result<Answer, Error> {
    let row = sqlx::query(
        "update request set answer = coalesce(answer, $3::json), answered_at = coalesce(answered_at, now()),
                answered_by = coalesce(answered_by, 'the end of the tool call')
          where tenant_id = $1 and id = $2 returning answer",
    )
    .bind(scope.tenant.0)
    .bind(id.as_str())
    .bind(Json(answer))
    .fetch_optional(&mut **tx)
    .await?;
    // The call ended before it stored its request.
    let Some(row) = row else { return Ok(answer.clone()) };
    let stored = row.try_get::<Json<Answer>, _>("answer").map_err(|e| Error::unreadable("request", e))?;
    Ok(stored.0)
}
