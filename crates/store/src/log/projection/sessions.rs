//! The columns of a session's row that its loop writes.

use super::rows::Statement;
use crate::{
    Tx,
    column::signed,
    error::Error,
    log::{
        change::{Scope, Title},
        control::{self, RETURNS},
    },
    session::{
        row::{self, INFO},
        tree::ledger::{self, Entry},
    },
};
use domain::{
    money::{Tokens, UsdPicos},
    session::{Changes, Info},
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, types::Json};

/// Stores entries in the ledger, adds them to the session's visible cost, and returns the session with the new sums.
pub(crate) async fn charge(tx: &mut Tx, scope: &Scope<'_>, entries: &[Entry]) -> Result<Info, Error> {
    let columns = "$3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
                   $12::bigint[], $13::bigint[], $14::bigint[]";
    let sums = "$15::bigint, $16::bigint, $17::bigint, $18::bigint, $19::bigint, $20::bigint";
    let sql = format!(
        "with stored as ({}) {}",
        ledger::insert_entries("session s", columns),
        add_to_sums("", sums)
    );
    let update = sqlx::query(AssertSqlSafe(sql)).bind(scope.tenant.0).bind(scope.session.as_str());
    row::update(tx, bind_charge(update, entries)).await
}

/// The statement that advances the control row of the owner, as [`control::advance_statement`] does, and charges the session. One statement, because every
/// step ends with it. It charges nothing if the fence does not match. The parameters of [`bind_charge`] follow the first seven.
pub(crate) fn fenced_charge() -> String {
    let columns = "$8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[],
                   $17::bigint[], $18::bigint[], $19::bigint[]";
    let sums = "$20::bigint, $21::bigint, $22::bigint, $23::bigint, $24::bigint, $25::bigint";
    format!(
        "with behind as ({}), stored as ({}), charged as ({}) select {RETURNS}, charged.* from behind, charged",
        control::advance_statement(),
        ledger::insert_entries("behind, session s", columns),
        add_to_sums("behind, ", sums)
    )
}

/// Adds the six `sums` of [`bind_charge`] to those of the session, once for each row of `source`.
fn add_to_sums(source: &str, sums: &str) -> String {
    format!(
        "update session s
            set input_tokens = s.input_tokens + spent.input, output_tokens = s.output_tokens + spent.output,
                reasoning_tokens = s.reasoning_tokens + spent.reasoning, cache_read_tokens = s.cache_read_tokens + spent.cache_read,
                cache_write_tokens = s.cache_write_tokens + spent.cache_write, cost_usd_picos = s.cost_usd_picos + spent.cost,
                updated_at = date_trunc('milliseconds', now())
           from {source}(values ({sums})) as spent (input, output, reasoning, cache_read, cache_write, cost)
          where s.tenant_id = $1 and s.id = $2
         returning {INFO}"
    )
}

/// Binds the entries of a charge, and their sums.
pub(crate) fn bind_charge<'q>(statement: Statement<'q>, entries: &'q [Entry]) -> Statement<'q> {
    let tokens = entries.iter().fold(Tokens::default(), |sum, entry| sum.plus(entry.tokens));
    let cost = entries.iter().fold(UsdPicos(0), |sum, entry| sum.plus(entry.cost));
    ledger::bind(statement, entries)
        .bind(signed(tokens.input))
        .bind(signed(tokens.output))
        .bind(signed(tokens.reasoning))
        .bind(signed(tokens.cache_read))
        .bind(signed(tokens.cache_write))
        .bind(cost.0)
}

/// Forgets the size of the prompts that a summary replaces. Prompts that came while the model wrote the summary are forgotten too; the
/// bound then allows that many more.
pub(crate) async fn forget_prompt_bytes(tx: &mut Tx, scope: &Scope<'_>) -> Result<(), Error> {
    sqlx::query("update session_run set prompt_bytes = 0 where tenant_id = $1 and session_id = $2")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Sets the title unless a person renamed the session meanwhile, and adds the cost of the model calls.
pub(crate) async fn set_title(tx: &mut Tx, scope: &Scope<'_>, title: &Title) -> Result<Info, Error> {
    if let Some(text) = &title.title {
        sqlx::query("update session set title = $4 where tenant_id = $1 and id = $2 and title = $3")
            .bind(scope.tenant.0)
            .bind(scope.session.as_str())
            .bind(&title.instead_of)
            .bind(text)
            .execute(&mut **tx)
            .await?;
    }
    charge(tx, scope, &title.entries).await
}

/// Sets the size of the session's file changes.
pub(crate) async fn set_file_summary(
    tx: &mut Tx,
    scope: &Scope<'_>,
    summary: &Changes,
) -> Result<Info, Error> {
    let sql = format!(
        "update session s set summary = $3, updated_at = date_trunc('milliseconds', now())
          where s.tenant_id = $1 and s.id = $2
         returning {INFO}"
    );
    let update = sqlx::query(AssertSqlSafe(sql));
    row::update(tx, update.bind(scope.tenant.0).bind(scope.session.as_str()).bind(Json(summary))).await
}

/// Sets the branch of the session's files.
pub(crate) async fn set_branch(tx: &mut Tx, scope: &Scope<'_>, branch: Option<&str>) -> Result<(), Error> {
    sqlx::query("update session set branch = $3 where tenant_id = $1 and id = $2")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(branch)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Forgets that the files of the session were opened: the next loop opens its source again, and copies of the earlier files do not count.
pub(crate) async fn forget_workspace(tx: &mut Tx, scope: &Scope<'_>) -> Result<(), Error> {
    sqlx::query("update session set has_workspace = false, workspace_opening = workspace_opening + 1 where tenant_id = $1 and id = $2")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Replaces the to-do list of the session.
pub(crate) async fn set_todos(tx: &mut Tx, scope: &Scope<'_>, todos: &Value) -> Result<(), Error> {
    sqlx::query("update session set todos = $3 where tenant_id = $1 and id = $2")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(Json(todos))
        .execute(&mut **tx)
        .await?;
    Ok(())
}
