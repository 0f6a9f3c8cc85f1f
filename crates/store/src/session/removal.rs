//! Removes reverted messages and parts: with the next prompt, or when a person asks for it.

use crate::{
    Tx,
    column::parse_id,
    error::Error,
    session::{control_row::RevertState, row},
};
use domain::{
    event::Event,
    ids::{PartId, SessionId, TenantId},
    session::{Info, Revert},
};
use sqlx::Row as _;

/// Completes a finished revert. The caller holds the control row. Returns the events; projecting them deletes the rows
/// of messages and parts.
///
/// # Errors
/// `NotFound`; `Unreadable`; `Db`.
pub(crate) async fn remove_reverted(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Vec<Event>, Error> {
    let info = row::read(tx, tenant, session).await?.info;
    let mut events = vec![];
    if let Some(revert) = &info.revert {
        events = message_removals(tx, tenant, session, revert).await?;
        if let Some(first) = &revert.part_id {
            events.extend(part_removals(tx, tenant, session, revert, first).await?);
        }
    }
    sqlx::query("update session set revert = null where tenant_id = $1 and id = $2")
        .bind(tenant.0)
        .bind(session.as_str())
        .execute(&mut **tx)
        .await?;
    sqlx::query("update session_run set revert_state = $3 where tenant_id = $1 and session_id = $2")
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(RevertState::None.to_i16())
        .execute(&mut **tx)
        .await?;
    events.push(Event::SessionUpdated(Box::new(Info { revert: None, ..info })));
    Ok(events)
}

/// The messages to remove, newest first: a reader never sees an answer without its question.
async fn message_removals(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
    revert: &Revert,
) -> Result<Vec<Event>, Error> {
    let rows = sqlx::query(
        "select m.id from message m join message p on p.tenant_id = m.tenant_id and p.session_id = m.session_id and p.id = $3
          where m.tenant_id = $1 and m.session_id = $2 and (m.seq > p.seq or (m.seq = p.seq and $4)) order by m.seq desc",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(revert.message_id.as_str())
    .bind(revert.part_id.is_none())
    .fetch_all(&mut **tx)
    .await?;
    rows.iter().map(|row| Ok(Event::MessageRemoved(parse_id("message", row.try_get("id")?)?))).collect()
}

/// The parts of the reverted message from `first` on, newest first.
async fn part_removals(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
    revert: &Revert,
    first: &PartId,
) -> Result<Vec<Event>, Error> {
    let rows = sqlx::query(
        "select q.id from part q join part p on p.tenant_id = q.tenant_id and p.session_id = q.session_id
            and p.message_id = q.message_id and p.id = $4
          where q.tenant_id = $1 and q.session_id = $2 and q.message_id = $3 and (q.seq, q.id) >= (p.seq, p.id)
          order by q.seq desc, q.id desc",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(revert.message_id.as_str())
    .bind(first.as_str())
    .fetch_all(&mut **tx)
    .await?;
    let removal = |part_id| Event::PartRemoved { message_id: revert.message_id.clone(), part_id };
    rows.iter().map(|row| Ok(removal(parse_id("part", row.try_get("id")?)?))).collect()
}
