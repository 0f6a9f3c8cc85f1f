//! What a loop reads before its first step.

mod recent;

use crate::{
    Store,
    column::{signed, unsigned},
    error::Error,
    log::{messages, parts::MessageWithParts},
    rows::session_row::SessionWithSettings,
    session::{
        mailbox::{self, MailboxInput},
        runs::{TakeOver, TakenSession},
    },
};
use domain::{
    event::{MESSAGE_UPDATED, PART_UPDATED, SUPERSEDED},
    ids::{SessionId, TenantId},
};
use recent::RecentConversation;
use sqlx::{PgConnection, Row as _};
use std::collections::HashSet;

/// Events after a kept conversation that are compared with its new messages. After more of them, the loop reads everything.
const NEW_EVENTS_MAX: usize = 256;
/// The beginning of the kinds of events that change messages or parts.
const MESSAGE_EVENTS: &str = "message.";

/// How much of a session a worker has kept since an earlier turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPosition {
    /// Position of the newest event that it includes.
    pub event_seq: u64,
    /// The id of that event: a session that was deleted and made again has another one there.
    pub event_id: String,
    /// Position after which messages are read again: clients may have written some while the worker wrote later ones.
    pub read_after: u64,
}

/// What a loop reads before its first step.
#[derive(Debug)]
pub struct LoopStart {
    /// The session as it was taken.
    pub stored: SessionWithSettings,
    /// The inputs that no loop has acknowledged, oldest first.
    pub inputs: Vec<MailboxInput>,
    /// The position up to which the newest summary replaces the conversation; 0: nothing is left out.
    pub left_out: u64,
    /// The messages after it, oldest first. Every prompt among the inputs is one of them.
    pub messages: Vec<MessageWithParts>,
    /// Whether the messages are only those after the kept ones, which are still as they were.
    pub continues_kept: bool,
}

impl Store {
    /// Reads what the loop of a taken session needs besides its row. Of a conversation that the worker has kept it reads only the new messages, if no other
    /// has changed.
    ///
    /// # Errors
    /// That of `stored`; `Unreadable` for data of a newer version; `Db`.
    pub async fn read_loop_start(
        &self,
        taken: TakenSession,
        kept: Option<&KeptPosition>,
    ) -> Result<LoopStart, Error> {
        let TakenSession { take_over: TakeOver { fence, input_ack, .. }, stored } = taken;
        let (stored, tenant, id) = (stored?, fence.tenant, &fence.session);
        // Clients may write between any two statements, also in a transaction, because each statement sees what is committed when it begins. The statements
        // leave the connection ready for the first write of the loop, which a transaction would not.
        let mut statements = self.statements(tenant).await?;
        if let Some(kept) = kept {
            // The inputs come before the messages, so every input that is read has its message. A prompt that is accepted in between is at most among the
            // messages: the first write of the loop finds its input, and the loop reads both.
            let inputs = mailbox::list(&mut statements, tenant, id, input_ack).await?;
            if let Some(messages) = find_new_messages(&mut statements, tenant, id, kept).await? {
                statements.end();
                return Ok(LoopStart { stored, inputs, left_out: 0, messages, continues_kept: true });
            }
        }
        let RecentConversation { inputs, left_out, messages } =
            recent::load_recent(&mut statements, tenant, id, input_ack).await?;
        statements.end();
        Ok(LoopStart { stored, inputs, left_out, messages, continues_kept: false })
    }
}

/// Reads the messages after the kept ones; `None` if a kept one may have changed since.
///
/// Every change of a message or a part is an event. The event that creates one has its position; any other event changes or removes what may have been
/// kept. An event that came between the two reads is taken for a change, too.
async fn find_new_messages(
    connection: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    kept: &KeptPosition,
) -> Result<Option<Vec<MessageWithParts>>, Error> {
    let messages = messages::load(connection, tenant, session, kept.read_after).await?;
    let rows = sqlx::query(
        "select seq, id, kind from session_event
          where tenant_id = $1 and session_id = $2 and seq >= $3 order by seq limit $4",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(signed(kept.event_seq))
    .bind(signed(NEW_EVENTS_MAX as u64 + 1))
    .fetch_all(connection)
    .await?;
    let Some((first, new)) = rows.split_first() else { return Ok(None) };
    let is_known = unsigned(first.try_get("seq")?) == kept.event_seq
        && first.try_get::<String, _>("id")? == kept.event_id;
    if !is_known || new.len() == NEW_EVENTS_MAX {
        return Ok(None);
    }
    let parts = messages.iter().flat_map(|entry| &entry.parts).map(|(seq, _)| *seq);
    let created: HashSet<u64> = messages.iter().map(|entry| entry.seq).chain(parts).collect();
    for row in new {
        let (seq, kind) = (unsigned(row.try_get("seq")?), row.try_get::<String, _>("kind")?);
        let creates = [MESSAGE_UPDATED, PART_UPDATED].contains(&kind.as_str()) && created.contains(&seq);
        if !creates && (kind.starts_with(MESSAGE_EVENTS) || kind == SUPERSEDED) {
            return Ok(None);
        }
    }
    Ok(Some(messages))
}
