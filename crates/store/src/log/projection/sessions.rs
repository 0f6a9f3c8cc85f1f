//! The columns of a session's row that its loop writes.

use crate::{
    Tx,
    column::signed,
    error::Error,
    log::change::{Scope, Title},
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

/// Stores entries in the ledger, adds them to the session's visible cost, and returns the session with the new sums. One statement, because every step
/// ends with it.
pub(crate) async fn charge(tx: &mut Tx, scope: &Scope<'_>, entries: &[Entry]) -> Result<Info, Error> {
    let tokens = entries.iter().fold(Tokens::default(), |sum, entry| sum.plus(entry.tokens));
    let cost = entries.iter().fold(UsdPicos(0), |sum, entry| sum.plus(entry.cost));
    let columns = "$3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
                   $12::bigint[], $13::bigint[], $14::bigint[]";
    let sql = format!(
        "with stored as ({})
         update session s
            set input_tokens = s.input_tokens + $15, output_tokens = s.output_tokens + $16,
                reasoning_tokens = s.reasoning_tokens + $17, cache_read_tokens = s.cache_read_tokens + $18,
                cache_write_tokens = s.cache_write_tokens + $19, cost_usd_picos = s.cost_usd_picos + $20,
                updated_at = date_trunc('milliseconds', now())
          where s.tenant_id = $1 and s.id = $2
         returning {INFO}",
        ledger::insert_entries("session s", columns)
    );
    let update = sqlx::query(AssertSqlSafe(sql)).bind(scope.tenant.0).bind(scope.session.as_str());
    let update = ledger::bind(update, entries)
        .bind(signed(tokens.input))
        .bind(signed(tokens.output))
        .bind(signed(tokens.reasoning))
        .bind(signed(tokens.cache_read))
        .bind(signed(tokens.cache_write))
        .bind(cost.0);
    row::update(tx, update).await
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
