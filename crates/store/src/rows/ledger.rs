//! The cost of model calls: one entry for each call whose provider reported usage, also if the call failed or was aborted.
//! Entries do not reference session rows, so money stays spent when a session or a subtask is deleted.
//!
//! A call whose provider reported no usage has no entry: its cost is unknown, and an estimate would be wrong. The same is true
//! of a call whose worker died before the call ended.

use crate::{column::signed, pool::Statement};
use domain::{
    conversation::message::ModelRef,
    money::{Tokens, UsdPicos},
};

/// The purpose of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A step of a turn.
    Step,
    /// A summary of the conversation.
    Summary,
    /// The title of a session.
    Title,
}

impl Purpose {
    /// The value of `ledger.purpose`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Summary => "summary",
            Self::Title => "title",
        }
    }
}

/// How a model call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    Finished,
    Failed,
    /// The worker closed the call before the answer was complete.
    Aborted,
}

impl CallOutcome {
    /// The value of `ledger.outcome`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }
}

/// The cost of one model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Names the call inside its session. Storing the same call again changes nothing.
    pub id: String,
    /// The purpose of the call.
    pub purpose: Purpose,
    pub outcome: CallOutcome,
    /// The model that was called.
    pub model: ModelRef,
    /// The usage that the provider reported.
    pub tokens: Tokens,
    /// The cost of that usage.
    pub cost: UsdPicos,
    /// The maximum cost of the call, estimated when it was sent; `None`: unknown.
    pub cost_max: Option<UsdPicos>,
}

/// The statement that stores entries for the session `$2` of the tenant `$1`. An entry that is already stored stays as it is. `source` has the session `s`;
/// `columns` are the parameters of [`bind`].
pub(crate) fn insert_entries(source: &str, columns: &str) -> String {
    format!(
        "insert into ledger (tenant_id, session_id, id, root_id, purpose, outcome, provider_id, model_id, input_tokens, output_tokens, reasoning_tokens,
                             cache_read_tokens, cache_write_tokens, cost_usd_picos, cost_max_usd_picos)
         select $1, s.id, e.id, case when s.root_id is null then s.id else s.root_id end, e.purpose, e.outcome, e.provider_id,
                e.model_id, e.input_tokens, e.output_tokens, e.reasoning_tokens, e.cache_read_tokens, e.cache_write_tokens,
                e.cost_usd_picos, e.cost_max_usd_picos
           from {source},
                unnest({columns})
                  as e (id, purpose, outcome, provider_id, model_id, input_tokens, output_tokens, reasoning_tokens,
                        cache_read_tokens, cache_write_tokens, cost_usd_picos, cost_max_usd_picos)
          where s.tenant_id = $1 and s.id = $2
         on conflict (tenant_id, session_id, id) do nothing"
    )
}

/// Binds entries: the twelve columns of [`insert_entries`].
pub(crate) fn bind<'q>(statement: Statement<'q>, entries: &'q [LedgerEntry]) -> Statement<'q> {
    let texts = |get: fn(&LedgerEntry) -> &str| entries.iter().map(get).collect::<Vec<_>>();
    let counts =
        |get: fn(&LedgerEntry) -> u64| -> Vec<i64> { entries.iter().map(|it| signed(get(it))).collect() };
    statement
        .bind(texts(|entry| &entry.id))
        .bind(texts(|entry| entry.purpose.as_str()))
        .bind(texts(|entry| entry.outcome.as_str()))
        .bind(texts(|entry| &entry.model.provider_id))
        .bind(texts(|entry| &entry.model.model_id))
        .bind(counts(|entry| entry.tokens.input))
        .bind(counts(|entry| entry.tokens.output))
        .bind(counts(|entry| entry.tokens.reasoning))
        .bind(counts(|entry| entry.tokens.cache_read))
        .bind(counts(|entry| entry.tokens.cache_write))
        .bind(entries.iter().map(|entry| entry.cost.0).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.cost_max.map(|max| max.0)).collect::<Vec<_>>())
}
