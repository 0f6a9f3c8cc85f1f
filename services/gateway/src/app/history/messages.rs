//! Reads messages. The row of an open part has no text; separate chunks hold its text so far.

use crate::{
    app::{
        gateway::Gateway,
        page::{List, PageRequest},
    },
    auth::principal::Principal,
    errors::{entity::Entity, error::Error},
    scope::Scope,
    state::State,
    streams::event::open_text,
};
use domain::ids::{MessageId, PartId, SessionId, TenantId};
use std::collections::HashMap;
use store::{
    Page,
    log::messages::{MessagePage, MessageWithParts},
};

/// Bytes of the pages of one response, unless the first page is larger. The response has a cursor for the rest.
const WHOLE_ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Lists one page of stored messages: the newest, or those before the cursor, oldest first.
///
/// # Errors
/// `session_not_found`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_stored(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    page: PageRequest,
) -> Result<List<MessageWithParts>, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let page = page.check(is_cursor)?;
    state.store.get_head(tenant, session).await?;
    read_pages(state, tenant, session, page, Extent::OnePage).await
}

/// Like [`list_stored`], with the text of open parts so far.
///
/// # Errors
/// Those of [`list_stored`].
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    page: PageRequest,
    extent: Extent,
) -> Result<List<MessageWithParts>, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let page = page.check(is_cursor)?;
    state.store.get_head(tenant, session).await?;
    let mut list = read_pages(state, tenant, session, page, extent).await?;
    fill_open_texts(state, tenant, session, &mut list.entries).await?;
    Ok(list)
}

/// Lists one page of the oldest messages after a position, at most `limit`.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(crate) async fn list_after(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    after: u64,
    limit: u32,
) -> Result<MessagePage, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    state.store.get_head(tenant, session).await?;
    let mut page = state.store.list_messages_after(tenant, session, after, limit).await?;
    fill_open_texts(state, tenant, session, &mut page.entries).await?;
    Ok(page)
}

/// Returns one stored message.
///
/// # Errors
/// `message_not_found`, `store_unavailable`.
pub(crate) async fn get_stored(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    message: &MessageId,
) -> Result<MessageWithParts, Error> {
    let tenant = principal.tenant(Scope::Read)?;
    Ok(gateway.state.store.get_message(tenant, session, message).await?)
}

/// Like [`get_stored`], with the text of open parts so far.
///
/// # Errors
/// Those of [`get_stored`].
pub(crate) async fn get(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    message: &MessageId,
) -> Result<MessageWithParts, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let mut entries = [state.store.get_message(tenant, session, message).await?];
    fill_open_texts(state, tenant, session, &mut entries).await?;
    let [entry] = entries;
    Ok(entry)
}

/// Returns the newest answer of a session.
///
/// # Errors
/// `message_not_found` if there is no answer; `store_unavailable`.
pub(crate) async fn get_newest_answer(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
) -> Result<MessageWithParts, Error> {
    let tenant = principal.tenant(Scope::Read)?;
    let answer = gateway.state.store.find_newest_answer(tenant, session).await?;
    answer.ok_or(Error::NotFound(Entity::Message))
}

/// The length of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    OnePage,
    /// As many pages as fit into one response.
    WholeAnswer,
}

/// Whether the cursor can come from a list of messages: it is the position of a message.
fn is_cursor(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|seq| i64::try_from(seq).is_ok())
}

/// Reads backwards in time until the page or the response is full, and returns the messages oldest first.
async fn read_pages(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
    mut page: Page,
    extent: Extent,
) -> Result<List<MessageWithParts>, Error> {
    let mut pages: Vec<Vec<MessageWithParts>> = vec![];
    let mut bytes = 0;
    let next = loop {
        let read = state.store.list_messages(tenant, session, &page).await?;
        bytes += read.bytes;
        if bytes > WHOLE_ANSWER_BYTES_MAX && !pages.is_empty() {
            break page.cursor;
        }
        let next = read.entries.first().filter(|_| read.has_more).map(|entry| entry.seq.to_string());
        pages.push(read.entries);
        if extent == Extent::OnePage || next.is_none() {
            break next;
        }
        page.cursor = next;
    };
    Ok(List { entries: pages.into_iter().rev().flatten().collect(), next })
}

/// Adds the stored text to open parts.
pub(in crate::app) async fn fill_open_texts(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
    entries: &mut [MessageWithParts],
) -> Result<(), Error> {
    let is_open = |entry: &MessageWithParts| entry.parts.iter().any(|(_, part)| open_text(part).is_some());
    if !entries.iter().any(is_open) {
        return Ok(());
    }
    let head = state.store.get_head(tenant, session).await?;
    let chunks = state.store.list_chunks(tenant, session, head.epoch).await?;
    let mut texts: HashMap<PartId, String> = HashMap::new();
    for chunk in chunks {
        let text = texts.entry(chunk.part_id).or_default();
        if usize::try_from(chunk.offset_bytes).is_ok_and(|offset| offset == text.len()) {
            text.push_str(&chunk.text);
        }
    }
    let parts = entries.iter_mut().flat_map(|entry| &mut entry.parts);
    for (_, part) in parts {
        let Some(text) = texts.remove(&part.id) else { continue };
        if let Some(open) = part.body.text_mut().filter(|open| open.is_empty()) {
            *open = text;
        }
    }
    Ok(())
}
