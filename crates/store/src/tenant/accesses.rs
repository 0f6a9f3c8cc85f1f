//! What the sessions of a tenant reached of the network, as people read it. The broker writes it.

use crate::{
    Page, Store,
    column::{timestamp, unsigned},
    error::Error,
};
use domain::{
    egress::EgressAccess,
    ids::{SessionId, TenantId},
};
use sqlx::{Row as _, postgres::PgRow};

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressEntry {
    pub cursor: String,
    pub access: EgressAccess,
}

impl Store {
    /// Lists what a session reached, newest first.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_egress(
        &self,
        tenant: TenantId,
        session: &SessionId,
        page: &Page,
    ) -> Result<Vec<EgressEntry>, Error> {
        let before = page.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).unwrap_or(i64::MAX);
        let query = sqlx::query(
            "select id, began_at, host, code, connections, bytes from egress_access
              where tenant_id = $1 and session_id = $2 and id < $3 order by id desc limit $4",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(before)
        .bind(page.limit());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }
}

fn from_row(row: &PgRow) -> Result<EgressEntry, Error> {
    let access = EgressAccess {
        began_at: timestamp(row.try_get("began_at")?),
        host: row.try_get("host")?,
        code: row.try_get("code")?,
        connections: unsigned(row.try_get("connections")?),
        bytes: unsigned(row.try_get("bytes")?),
    };
    Ok(EgressEntry { cursor: row.try_get::<i64, _>("id")?.to_string(), access })
}
