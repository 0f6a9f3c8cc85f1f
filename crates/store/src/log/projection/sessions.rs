//! The columns of a session's row that its loop writes.

use super::charges::{ADD_SPENT, SPENT, bind_sums};
use crate::{
    Tx,
    error::Error,
    log::change::{Charge, Scope, Title},
    rows::{
        ledger,
        session_row::{self, INFO},
    },
};
use domain::session::{Changes, Info};
use sqlx::{AssertSqlSafe, types::Json};

/// Stores the entries of a charge in the ledger, adds them to the session's visible cost, and returns the session with the new sums.
pub(crate) async fn charge(tx: &mut Tx, scope: &Scope<'_>, charge: &Charge) -> Result<Info, Error> {
    let columns = "$9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[],
                   $18::bigint[], $19::bigint[], $20::bigint[]";
    let sql = format!(
        "with stored as ({})
         update session s set {ADD_SPENT}, updated_at = date_trunc('milliseconds', now())
           from (values ($3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint)) as spent ({SPENT})
          where s.tenant_id = $1 and s.id = $2
         returning {INFO}",
        ledger::insert_entries("session s", columns),
    );
    let update = sqlx::query(AssertSqlSafe(sql)).bind(scope.tenant.0).bind(scope.session.as_str());
    session_row::update(tx, ledger::bind(bind_sums(update, charge.sums()), &charge.entries)).await
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
    charge(tx, scope, &Charge::new(title.entries.clone())).await
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
    session_row::update(tx, update.bind(scope.tenant.0).bind(scope.session.as_str()).bind(Json(summary)))
        .await
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
