//! Sessions by the idempotency key of whoever asked for them: the same key gives the same session. In the row it stands behind
//! `key:`, because children have names there, too, which nobody may take from them.

use crate::{
    Store,
    error::{Entity, Error},
    parsed,
    session::sessions::{self, NewSession, Session},
};
use domain::ids::TenantId;
use sqlx::{Postgres, Row as _, Transaction};

/// The name of a session by who asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// What the caller named it.
    pub name: String,
    /// SHA-256 of what was asked for; `None` where the name alone counts.
    pub body_sha256: Option<[u8; 32]>,
}

impl Store {
    /// Gives the session that was made with this key, if there is one.
    ///
    /// # Errors
    /// `Conflict`: something else was asked for with it. `Db`.
    pub async fn find_keyed_session(&self, tenant: TenantId, key: &Key) -> Result<Option<Session>, Error> {
        find(&mut self.begin(tenant).await?, tenant, key).await
    }
}

/// Gives the session for which `new` could not be inserted, because its key was used before.
pub(crate) async fn get(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    new: &NewSession,
) -> Result<Session, Error> {
    let missing = Error::NotFound(Entity::Project);
    match &new.key {
        Some(key) => find(tx, tenant, key).await?.ok_or(missing),
        None => Err(missing),
    }
}

async fn find(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    key: &Key,
) -> Result<Option<Session>, Error> {
    let row = sqlx::query(
        "select id, body_sha256 is not distinct from $3 as is_same from session
          where tenant_id = $1 and dedupe = 'key:' || $2",
    )
    .bind(tenant.0)
    .bind(&key.name)
    .bind(key.body_sha256.as_ref().map(<[u8; 32]>::as_slice))
    .fetch_optional(&mut **tx)
    .await?;
    let Some(row) = row else { return Ok(None) };
    if !row.try_get("is_same")? {
        return Err(Error::Conflict);
    }
    sessions::read(tx, tenant, &parsed(row.try_get("id")?)?).await.map(Some)
}
