//! What a loop reads of a conversation when it begins.

use crate::{
    column::{signed, unsigned},
    error::Error,
    log::parts::{MessageWithParts, Parts},
    rows::control_row::EXISTS,
    session::mailbox::{self, MailboxInput},
};
use domain::ids::{SessionId, TenantId};
use futures::{TryStreamExt as _, future::ready};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

/// What a loop reads of a session besides its row.
pub(crate) struct RecentConversation {
    /// The inputs that no loop has acknowledged, oldest first. Every prompt among them is one of the messages.
    pub(crate) inputs: Vec<MailboxInput>,
    /// The position up to which the newest summary replaces the conversation; 0: nothing is left out.
    pub(crate) left_out: u64,
    /// The messages after it, oldest first.
    pub(crate) messages: Vec<MessageWithParts>,
}

/// Reads the inputs after `input_ack`, and what a loop needs of a conversation: everything, or the part that the newest summary does not replace. Its
/// messages include the summary with the message that requested it, the tail that the summary kept, and the newest accepted prompt.
///
/// A summary counts once another step has begun after it. Until then the message that requested it decides what comes next.
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn load_recent(
    connection: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    input_ack: u64,
) -> Result<RecentConversation, Error> {
    // One statement, so that nothing comes in between. It reads the parts of the whole session at once if no message is left out, because to look up
    // thousands of messages one by one costs more. The rows have no order: sorting would delay the first one until the last one is found.
    let rows = sqlx::query(AssertSqlSafe(format!(
        "with recent as materialized (
           select coalesce((
             select least(ask.seq, tail.seq, prompt.seq)
               from part p
               join message ask on ask.tenant_id = $1 and ask.session_id = $2 and ask.id = p.message_id
               join lateral (
                 select s.seq from message s
                  where s.tenant_id = $1 and s.session_id = $2 and s.seq > ask.seq and s.role = 'assistant'
                    and s.info->>'parentID' = ask.id and s.info->>'summary' = 'true'
                    and s.info->>'finish' is not null and s.info->>'error' is null
                  order by s.seq limit 1) summary on true
               left join message tail
                 on tail.tenant_id = $1 and tail.session_id = $2 and tail.id = p.data->>'tail_start_id'
               left join lateral (
                 select m.seq from session_input i
                   join message m on m.tenant_id = $1 and m.session_id = $2 and m.id = i.message_id
                  where i.tenant_id = $1 and i.session_id = $2 and i.kind = 'prompt'
                  order by i.seq desc limit 1) prompt on true
              where p.tenant_id = $1 and p.session_id = $2 and p.kind = 'compaction'
                and exists (
                  select 1 from message later
                   where later.tenant_id = $1 and later.session_id = $2 and later.seq > summary.seq
                     and later.role = 'assistant')
              order by p.seq desc limit 1), 0) as begins_at)
         select 'input' as entity, seq, id, data, kind, dedupe, traceparent, null::bigint as begins_at
           from ({}) input
         union all
         select 'message', seq, id, info, null, null, null, (select begins_at from recent) from message
          where tenant_id = $1 and session_id = $2 and seq >= (select begins_at from recent) and {EXISTS}
         union all
         select 'part', seq, message_id, data, null, null, null, null from part
          where tenant_id = $1 and session_id = $2 and (select begins_at from recent) = 0
         union all
         select 'part', p.seq, p.message_id, p.data, null, null, null, null
           from message m join part p on p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.id
          where m.tenant_id = $1 and m.session_id = $2 and m.seq >= (select begins_at from recent)
            and (select begins_at from recent) > 0",
        mailbox::select_after("$3", "$4")
    )))
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(signed(input_ack))
    .bind(mailbox::INPUTS_MAX)
    .fetch(connection);
    let (mut inputs, mut messages) = (vec![], vec![]);
    let parts = rows.map_err(Error::from).try_filter_map(|row| {
        ready(match row.try_get("entity") {
            Ok("input") => mailbox::from_row(&row).map(|input| {
                inputs.push(input);
                None
            }),
            Ok("message") => {
                messages.push(row);
                Ok(None)
            }
            Ok(_) => Ok(Some(row)),
            Err(error) => Err(error.into()),
        })
    });
    let parts = Parts::read(parts).await?;
    inputs.sort_unstable_by_key(|input| input.seq);
    let begins_at = messages.first().map_or(Ok(0), |row| row.try_get("begins_at"))?;
    let mut messages = parts.into_messages(&messages)?;
    messages.sort_unstable_by_key(|entry| entry.seq);
    Ok(RecentConversation { inputs, left_out: unsigned(begins_at).saturating_sub(1), messages })
}
