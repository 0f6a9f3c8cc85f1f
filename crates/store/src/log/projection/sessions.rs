//! The columns of a session's row that its loop writes.

use crate::{
    Tx,
    column::signed,
    error::Error,
    log::change::{Scope, Title},
    session::{
        row,
        tree::ledger::{self, Entry},
    },
};
use domain::{
    money::{Tokens, UsdPicos},
    session::{Changes, Info},
};
use serde_json::Value;
use sqlx::types::Json;

/// Stores entries in the ledger, adds them to the session's visible cost, and returns the session with the new sums.
pub(crate) async fn charge(tx: &mut Tx, scope: &Scope<'_>, entries: &[Entry]) -> Result<Info, Error> {
    ledger::insert(tx, scope.tenant, scope.session, entries).await?;
    let tokens = entries.iter().fold(Tokens::default(), |sum, entry| sum.plus(entry.tokens));
    let cost = entries.iter().fold(UsdPicos(0), |sum, entry| sum.plus(entry.cost));
    sqlx::query(
        "update session set input_tokens = input_tokens + $3, output_tokens = output_tokens + $4,
                reasoning_tokens = reasoning_tokens + $5, cache_read_tokens = cache_read_tokens + $6,
                cache_write_tokens = cache_write_tokens + $7, cost_usd_picos = cost_usd_picos + $8,
                updated_at = date_trunc('milliseconds', now())
          where tenant_id = $1 and id = $2",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(signed(tokens.input))
    .bind(signed(tokens.output))
    .bind(signed(tokens.reasoning))
    .bind(signed(tokens.cache_read))
    .bind(signed(tokens.cache_write))
    .bind(cost.0)
    .execute(&mut **tx)
    .await?;
    read_info(tx, scope).await
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
    sqlx::query(
        "update session set summary = $3, updated_at = date_trunc('milliseconds', now())
          where tenant_id = $1 and id = $2",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(Json(summary))
    .execute(&mut **tx)
    .await?;
    read_info(tx, scope).await
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

async fn read_info(tx: &mut Tx, scope: &Scope<'_>) -> Result<Info, Error> {
    Ok(row::read(tx, scope.tenant, scope.session).await?.info)
}
