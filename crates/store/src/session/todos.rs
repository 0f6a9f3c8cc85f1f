//! The list of things to do of a session: written by its loop, read by its agent and by people.

use crate::{
    Store,
    error::{Entity, Error},
    log::record::Scope,
};
use domain::ids::{SessionId, TenantId};
use serde_json::{Value, json};
use sqlx::{Postgres, Row as _, Transaction, types::Json};

impl Store {
    /// Gives the list as the agent wrote it; an empty one if it wrote none.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_todos(&self, tenant: TenantId, session: &SessionId) -> Result<Value, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query("select todos from session where tenant_id = $1 and id = $2")
            .bind(tenant.0)
            .bind(session.as_str())
            .fetch_optional(&mut *tx)
            .await?
            .ok_or(Error::NotFound(Entity::Session))?;
        Ok(row.try_get::<Option<Json<Value>>, _>("todos")?.map_or_else(|| json!([]), |todos| todos.0))
    }
}

/// Replaces the list.
pub(crate) async fn project(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    todos: &Value,
) -> Result<(), Error> {
    sqlx::query("update session set todos = $3 where tenant_id = $1 and id = $2")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(Json(todos))
        .execute(&mut **tx)
        .await?;
    Ok(())
}
