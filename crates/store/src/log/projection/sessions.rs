//! The columns of a session's row that its loop writes.

use crate::{
    Tx,
    column::signed,
    error::Error,
    log::change::{Scope, Spend, Title},
    session::row,
};
use domain::session::{Changes, Info};
use serde_json::Value;
use sqlx::types::Json;

/// Adds to what the session spent, and gives the session with the new sums.
pub(crate) async fn add_spend(tx: &mut Tx, scope: &Scope<'_>, spend: &Spend) -> Result<Info, Error> {
    sqlx::query(
        "update session set input_tokens = input_tokens + $3, output_tokens = output_tokens + $4,
                reasoning_tokens = reasoning_tokens + $5, cache_read_tokens = cache_read_tokens + $6,
                cache_write_tokens = cache_write_tokens + $7, cost_usd_picos = cost_usd_picos + $8,
                updated_at = date_trunc('milliseconds', now())
          where tenant_id = $1 and id = $2",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(signed(spend.tokens.input))
    .bind(signed(spend.tokens.output))
    .bind(signed(spend.tokens.reasoning))
    .bind(signed(spend.tokens.cache_read))
    .bind(signed(spend.tokens.cache_write))
    .bind(spend.cost.0)
    .execute(&mut **tx)
    .await?;
    read_info(tx, scope).await
}

/// Sets the title unless a person renamed the session meanwhile, and adds the cost of the model call.
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
    add_spend(tx, scope, &title.spend).await
}

/// Sets how much the files of the session changed.
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

/// Sets the branch that the files of the session are on.
pub(crate) async fn set_branch(tx: &mut Tx, scope: &Scope<'_>, branch: Option<&str>) -> Result<(), Error> {
    sqlx::query("update session set branch = $3 where tenant_id = $1 and id = $2")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(branch)
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
