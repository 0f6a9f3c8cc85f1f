//! Removes reverted messages and parts, and the archive mark: with the next prompt. Removes what is reverted also when a person asks for it.

use crate::{
    Tx,
    column::parse_id,
    error::Error,
    rows::{
        control_row::{ControlRow, RevertState},
        session_row::{self, INFO},
    },
};
use domain::{
    event::Event,
    ids::{PartId, SessionId, TenantId},
    session::{Info, Revert},
};
use sqlx::{AssertSqlSafe, Row as _};

/// Whether [`prepare_for_prompt`] has something to do.
pub(crate) fn must_precede_prompt(run: &ControlRow) -> bool {
    run.is_archived || run.revert_state == RevertState::Done
}

/// Removes reverted messages and the archive mark before a prompt is stored. The caller holds the control row. Returns the events of that.
///
/// # Errors
/// `NotFound`; `Unreadable`; `Db`.
pub(crate) async fn prepare_for_prompt(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
    run: &ControlRow,
) -> Result<Vec<Event>, Error> {
    let mut events = match run.revert_state {
        RevertState::Done => remove_reverted(tx, tenant, session).await?,
        RevertState::None | RevertState::Unfinished => vec![],
    };
    if run.is_archived {
        events.push(unarchive(tx, tenant, session).await?);
    }
    Ok(events)
}

/// Returns an archived session to the lists, and returns the event of that.
async fn unarchive(tx: &mut Tx, tenant: TenantId, session: &SessionId) -> Result<Event, Error> {
    let sql = format!(
        "update session s set archived_at = null, updated_at = date_trunc('milliseconds', now())
          where s.tenant_id = $1 and s.id = $2
         returning {INFO}"
    );
    let update = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(session.as_str());
    Ok(Event::SessionUpdated(Box::new(session_row::update(tx, update).await?)))
}

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
    let info = session_row::read(tx, tenant, session).await?.info;
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
