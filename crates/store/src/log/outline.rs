//! The outline of a conversation: its messages and parts without texts, outputs and files. It is small however large the conversation
//! is.

use crate::{
    Store,
    column::{parse_id, unsigned},
    error::Error,
    rows::control_row::EXISTS,
};
use domain::{
    conversation::part::Body,
    ids::{MessageId, PartId, SessionId, TenantId},
};
use sqlx::{AssertSqlSafe, Row as _, types::Json};
use std::collections::HashMap;

#[derive(Debug, Clone, PartialEq)]
pub struct MessageOutline {
    /// Its position in the session.
    pub seq: u64,
    pub id: MessageId,
    /// Whether a user sent it.
    pub is_prompt: bool,
    /// Its parts, in order.
    pub parts: Vec<PartOutline>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PartOutline {
    pub id: PartId,
    /// Whether it is a text or a tool call.
    pub is_text_or_tool: bool,
    /// The body of a part that names a state of the files: step-start, step-finish, snapshot, patch.
    pub state: Option<Body>,
}

impl Store {
    /// Returns the outline of a session's conversation, oldest message first.
    ///
    /// # Errors
    /// `Unreadable` for a part of a newer version; `Db`.
    pub async fn load_outline(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Vec<MessageOutline>, Error> {
        let mut statements = self.statements(tenant).await?;
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select id, seq, role = 'user' as is_prompt from message
              where tenant_id = $1 and session_id = $2 and {EXISTS} order by seq"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_all(&mut *statements)
        .await?;
        let (mut outline, mut indexes) = (Vec::with_capacity(rows.len()), HashMap::with_capacity(rows.len()));
        for row in &rows {
            let id: String = row.try_get("id")?;
            let is_prompt = row.try_get("is_prompt")?;
            let seq = unsigned(row.try_get("seq")?);
            outline.push(MessageOutline { seq, id: parse_id("message", &id)?, is_prompt, parts: vec![] });
            indexes.insert(id, outline.len() - 1);
        }
        let rows = sqlx::query(
            "select message_id, id, kind in ('text', 'tool') as is_text_or_tool,
                    case when kind in ('step-start', 'step-finish', 'snapshot', 'patch') then data end as state
               from part where tenant_id = $1 and session_id = $2 order by seq, id",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_all(&mut *statements)
        .await?;
        statements.end();
        for row in &rows {
            let index = indexes.get(row.try_get::<&str, _>("message_id")?).copied();
            // A message may have been written between the two statements.
            let Some(message) = index.and_then(|index| outline.get_mut(index)) else { continue };
            let state: Option<Json<Body>> =
                row.try_get("state").map_err(|error| Error::unreadable("part", error))?;
            message.parts.push(PartOutline {
                id: parse_id("part", row.try_get("id")?)?,
                is_text_or_tool: row.try_get("is_text_or_tool")?,
                state: state.map(|json| json.0),
            });
        }
        Ok(outline)
    }
}
