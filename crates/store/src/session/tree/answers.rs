//! The answers of children, on their way to the parent's mailbox.

use crate::{
    Store, Tx,
    error::Error,
    rows::{control_row::EXISTS, session_row::ParentCall},
    session::{
        mailbox::{Kind, NewInput},
        tree::family::Parent,
    },
};
use domain::{
    ids::{PartId, SessionId, TenantId},
    session::Outcome,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow, types::Json};

/// The answer of a child to its parent: the body of an input of kind `child`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildAnswer {
    pub child: SessionId,
    /// The part of the tool call that it answers.
    pub part_id: PartId,
    pub outcome: Outcome,
    /// Its last text, or why it failed.
    pub text: String,
    /// Its newest tool calls, as its reports show them; null if its loop stored none.
    #[serde(default)]
    pub summary: Value,
}

impl ChildAnswer {
    /// The answer that a transaction stores on behalf of a child that cannot answer any more.
    pub(crate) fn failed(call: &ParentCall, child: &SessionId, text: &str) -> Self {
        Self {
            child: child.clone(),
            part_id: call.part_id.clone(),
            outcome: Outcome::Failed,
            text: text.to_owned(),
            summary: Value::Null,
        }
    }
}

impl Store {
    /// Returns the answers of children to these tool calls, whether or not a loop has taken them.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_answers(
        &self,
        tenant: TenantId,
        session: &SessionId,
        parts: &[&PartId],
    ) -> Result<Vec<ChildAnswer>, Error> {
        let names: Vec<String> = parts.iter().map(|part| dedupe(part)).collect();
        let query = sqlx::query(AssertSqlSafe(format!(
            "select body from session_input
              where tenant_id = $1 and session_id = $2 and dedupe = any($3) and {EXISTS} order by seq"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(&names);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let answer = |row: &PgRow| row.try_get::<Json<ChildAnswer>, _>("body").map(|json| json.0);
        let answers = rows.iter().map(answer).collect::<Result<_, _>>();
        answers.map_err(|error| Error::unreadable("answer", error))
    }
}

/// Puts a child's answer into its parent's mailbox, once for each call. If the call is over, the parent does not wait for the
/// answer, and nothing is stored.
///
/// # Errors
/// `Db`.
pub(crate) async fn deliver(
    tx: &mut Tx,
    tenant: TenantId,
    parent: &Parent,
    answer: &ChildAnswer,
) -> Result<(), Error> {
    let open = sqlx::query(
        "select 1 from tool_exec where tenant_id = $1 and session_id = $2 and exec_id = $3 and state = 'executing'",
    )
    .bind(tenant.0)
    .bind(parent.session.as_str())
    .bind(answer.part_id.as_str())
    .fetch_optional(&mut **tx)
    .await?;
    if open.is_none() {
        return Ok(());
    }
    let body = serde_json::to_value(answer).map_err(|error| Error::unreadable("answer", error))?;
    let dedupe = dedupe(&answer.part_id);
    let input = NewInput { body: Some(body), ..NewInput::new(Kind::Child, &dedupe) };
    parent.mailbox(tenant).put(tx, input).await
}

/// The mailbox name of the answer to a call.
fn dedupe(part: &PartId) -> String {
    format!("child:{part}")
}
