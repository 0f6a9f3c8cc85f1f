//! Titles that a model gives to sessions that nobody named. What people call a session is `sessions`' business.

use crate::{error::Error, log::record::Scope, session::budget};
use domain::{
    money::{Tokens, UsdPicos},
    session::Info,
};
use sqlx::{Postgres, Transaction};

/// What a model made of the first prompt of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Title {
    /// The title that the session had when the model was asked: a session with another one was named meanwhile.
    pub instead_of: String,
    /// What it is called from now on; `None` when the model said nothing.
    pub title: Option<String>,
    /// What that cost.
    pub spent: (Tokens, UsdPicos),
}

/// Names the session unless somebody else did, adds what that cost, and gives the session as it is then.
pub(crate) async fn set(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    title: &Title,
) -> Result<Info, Error> {
    if let Some(text) = &title.title {
        sqlx::query("update session set title = $4 where tenant_id = $1 and id = $2 and title = $3")
            .bind(scope.tenant.0)
            .bind(scope.session.as_str())
            .bind(&title.instead_of)
            .bind(text)
            .execute(&mut **tx)
            .await?;
    }
    budget::spend(tx, scope.tenant, scope.session, title.spent).await
}
