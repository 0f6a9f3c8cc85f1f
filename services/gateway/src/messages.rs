//! What was said, as far as it is: the text of a part that still streams is in pieces beside it.

use crate::{grpc::from_store, state::State};
use domain::{
    ids::{MessageId, PartId, SessionId, TenantId},
    limits,
    message::Message,
    part::{Body, Part},
};
use std::collections::HashMap;
use store::{Page, log::messages::MessageWithParts};
use tonic::Status;

/// A message with its parts.
#[derive(Debug)]
pub(crate) struct Said(pub(crate) MessageWithParts);

/// One page of a conversation.
#[derive(Debug)]
pub(crate) struct Found {
    /// Oldest first.
    pub(crate) said: Vec<Said>,
    /// Where the page before this one ends, if there may be one.
    pub(crate) next: Option<String>,
}

/// Lists one page, or with `all` as many pages as one answer holds.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn list(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
    (mut page, all): (Page, bool),
) -> Result<Found, Status> {
    let (mut said, mut bytes): (Vec<Said>, usize) = (vec![], 0);
    loop {
        let entries = state.store.list_messages(tenant, session, &page).await.map_err(from_store)?;
        let is_last = entries.len() < usize::try_from(page.limit).unwrap_or(usize::MAX);
        for entry in entries.into_iter().rev() {
            bytes += entry.parts.iter().map(|(_, part)| size(part)).sum::<usize>();
            if bytes > limits::MESSAGES_BYTES_MAX && !said.is_empty() {
                let next = Some((entry.seq + 1).to_string());
                return Ok(Found { said: finished(state, tenant, session, said).await?, next });
            }
            said.push(Said(entry));
        }
        let next = said.last().filter(|_| !is_last).map(|said| said.0.seq.to_string());
        if !all || next.is_none() {
            return Ok(Found { said: finished(state, tenant, session, said).await?, next });
        }
        page.cursor = next;
    }
}

/// Lists the oldest messages after a place, at most `limit`, oldest first.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn list_after(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
    (after, limit): (u64, u32),
) -> Result<Vec<Said>, Status> {
    let entries = state.store.list_messages_after(tenant, session, after, limit).await.map_err(from_store)?;
    let mut said: Vec<Said> = entries.into_iter().map(Said).collect();
    fill(state, tenant, session, &mut said).await?;
    Ok(said)
}

/// Gives one message.
///
/// # Errors
/// `message_not_found`, `store_unavailable`.
pub(crate) async fn get(
    state: &State,
    tenant: TenantId,
    (session, message): (&SessionId, &MessageId),
) -> Result<Said, Status> {
    let entry = state.store.get_message(tenant, session, message).await.map_err(from_store)?;
    let mut said = vec![Said(entry)];
    fill(state, tenant, session, &mut said).await?;
    said.pop().ok_or_else(|| from_store(store::error::Error::NotFound(store::error::Entity::Message)))
}

/// The last answer of the turn that answered a prompt, also when that joined another one's turn.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn answer(
    state: &State,
    tenant: TenantId,
    (session, prompt): (&SessionId, &MessageId),
) -> Result<Option<Said>, Status> {
    let page = Page { limit: limits::PAGE_MAX, cursor: None };
    let entries = state.store.list_messages(tenant, session, &page).await.map_err(from_store)?;
    let is_answer = |entry: &&MessageWithParts| matches!(entry.message, Message::Assistant(_));
    let is_own = |entry: &&MessageWithParts| matches!(&entry.message, Message::Assistant(step) if &step.parent_id == prompt);
    let own = entries.iter().rev().find(is_own);
    Ok(own.or_else(|| entries.iter().rev().find(is_answer)).cloned().map(Said))
}

/// Oldest first, with the text so far.
async fn finished(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
    mut said: Vec<Said>,
) -> Result<Vec<Said>, Status> {
    said.reverse();
    fill(state, tenant, session, &mut said).await?;
    Ok(said)
}

/// Gives parts that still stream the text that is stored of them.
async fn fill(state: &State, tenant: TenantId, session: &SessionId, said: &mut [Said]) -> Result<(), Status> {
    let streams = |said: &Said| said.0.parts.iter().any(|(_, part)| open_text(part).is_some());
    if !said.iter().any(streams) {
        return Ok(());
    }
    let head = state.store.get_head(tenant, session).await.map_err(from_store)?;
    let chunks = state.store.list_chunks(tenant, session, head.epoch).await.map_err(from_store)?;
    let mut texts: HashMap<PartId, String> = HashMap::new();
    for chunk in chunks {
        let text = texts.entry(chunk.part_id).or_default();
        if usize::try_from(chunk.offset_bytes).is_ok_and(|offset| offset == text.len()) {
            text.push_str(&chunk.text);
        }
    }
    let parts = said.iter_mut().flat_map(|said| &mut said.0.parts);
    for (_, part) in parts {
        let Some(text) = texts.remove(&part.id) else { continue };
        match &mut part.body {
            Body::Text(open) if open.text.is_empty() => open.text = text,
            Body::Reasoning(open) if open.text.is_empty() => open.text = text,
            _ => {}
        }
    }
    Ok(())
}

/// The text of a part that still streams.
pub(crate) fn open_text(part: &Part) -> Option<&str> {
    match &part.body {
        Body::Text(text) if text.time.is_some_and(|time| time.end.is_none()) => Some(&text.text),
        Body::Reasoning(thought) if thought.time.end.is_none() => Some(&thought.text),
        _ => None,
    }
}

/// Roughly how long a part is as JSON; bytes.
fn size(part: &Part) -> usize {
    serde_json::to_vec(part).map_or(0, |json| json.len())
}
