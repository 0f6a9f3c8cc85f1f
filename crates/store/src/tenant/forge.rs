//! A tenant's installations of the App at a forge, and the sessions of its issues and pull requests.

use crate::{
    Store,
    column::{signed, timestamp, unsigned},
    error::{Entity, Error},
};
use domain::ids::{SessionId, TenantId, Timestamp};
use sqlx::{Row as _, postgres::PgRow};

/// An installation of the App that belongs to a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub id: u64,
    /// The organization or the person at the forge.
    pub account: String,
    pub bound_at: Timestamp,
    pub bound_by: String,
}

/// An issue or a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadKey {
    pub repository: u64,
    pub number: u64,
}

impl Store {
    /// Binds an installation to a tenant. The same again changes nothing.
    ///
    /// # Errors
    /// `Conflict`: another tenant has it; `NotFound`: there is no such tenant; `Db`: bound or not.
    pub async fn bind_installation(
        &self,
        tenant: TenantId,
        id: u64,
        account: &str,
        by: &str,
    ) -> Result<Installation, Error> {
        let insert = sqlx::query(
            "insert into forge_installation (tenant_id, id, account, bound_by) values ($1, $2, $3, $4)
             on conflict (tenant_id, id) do update set account = excluded.account
             returning id, account, bound_at, bound_by",
        )
        .bind(tenant.0)
        .bind(signed(id))
        .bind(account)
        .bind(by);
        // In a transaction, so that the line of the audit names who did it.
        let mut tx = self.begin(tenant).await?;
        let bound = insert.fetch_one(&mut *tx).await;
        let bound =
            bound.map_err(|error| match error.as_database_error().and_then(|error| error.constraint()) {
                Some("forge_installation_one_owner") => Error::Conflict,
                Some("forge_installation_tenant_fk") => Error::NotFound(Entity::Tenant),
                Some(_) | None => Error::Db(error),
            })?;
        let bound = installation(&bound)?;
        tx.commit().await?;
        Ok(bound)
    }

    /// Lists the installations of a tenant.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_installations(&self, tenant: TenantId) -> Result<Vec<Installation>, Error> {
        let query = sqlx::query(
            "select id, account, bound_at, bound_by from forge_installation where tenant_id = $1 order by id",
        )
        .bind(tenant.0);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(installation).collect()
    }

    /// Finds the session of an issue or a pull request.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn find_thread(&self, tenant: TenantId, key: ThreadKey) -> Result<Option<SessionId>, Error> {
        let query = sqlx::query(
            "select session_id from forge_thread where tenant_id = $1 and repository_id = $2 and number = $3",
        )
        .bind(tenant.0)
        .bind(signed(key.repository))
        .bind(signed(key.number));
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        row.map(|row| crate::column::parse_id("thread", row.try_get("session_id")?)).transpose()
    }

    /// Makes a session that of an issue or a pull request, in place of an earlier one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn put_thread(
        &self,
        tenant: TenantId,
        key: ThreadKey,
        session: &SessionId,
    ) -> Result<(), Error> {
        let upsert = sqlx::query(
            "insert into forge_thread (tenant_id, repository_id, number, session_id) values ($1, $2, $3, $4)
             on conflict (tenant_id, repository_id, number) do update set session_id = excluded.session_id",
        )
        .bind(tenant.0)
        .bind(signed(key.repository))
        .bind(signed(key.number))
        .bind(session.as_str());
        self.statements(tenant).await?.run(upsert).await?;
        Ok(())
    }
}

fn installation(row: &PgRow) -> Result<Installation, Error> {
    Ok(Installation {
        id: unsigned(row.try_get("id")?),
        account: row.try_get("account")?,
        bound_at: timestamp(row.try_get("bound_at")?),
        bound_by: row.try_get("bound_by")?,
    })
}
