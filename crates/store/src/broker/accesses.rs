//! What sessions reached of the network, as the broker notes it.

use super::BrokerStore;
use crate::{
    column::signed,
    error::{Entity, Error},
};
use domain::{
    egress::EgressAccess,
    ids::{SessionId, TenantId},
    limits::{EGRESS_ACCESSES_MAX, EGRESS_REFUSALS_MAX},
};
use sqlx::AssertSqlSafe;

impl BrokerStore {
    /// Adds what a session reached, oldest first, and removes the oldest of its rows beyond [`EGRESS_ACCESSES_MAX`] and
    /// [`EGRESS_REFUSALS_MAX`].
    ///
    /// # Errors
    /// `NotFound`: the session is gone. `Db`: stored or not.
    pub async fn add_egress(
        &self,
        tenant: TenantId,
        session: &SessionId,
        accesses: &[EgressAccess],
    ) -> Result<(), Error> {
        let mut tx = self.0.begin(tenant).await?;
        let column = |of: fn(&EgressAccess) -> u64| accesses.iter().map(of).map(signed).collect::<Vec<_>>();
        sqlx::query(
            "insert into egress_access (tenant_id, session_id, began_at, host, code, connections, bytes)
             select $1, $2, to_timestamp(at / 1000.0), host, code, connections, bytes
               from unnest($3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
                 as row (at, host, code, connections, bytes)",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(accesses.iter().map(|access| access.began_at.0).collect::<Vec<_>>())
        .bind(accesses.iter().map(|access| access.host.clone()).collect::<Vec<_>>())
        .bind(accesses.iter().map(|access| access.code.clone()).collect::<Vec<_>>())
        .bind(column(|access| access.connections))
        .bind(column(|access| access.bytes))
        .execute(&mut *tx)
        .await
        .map_err(|error| match error.as_database_error().and_then(|error| error.constraint()) {
            Some("egress_access_session_fk") => Error::NotFound(Entity::Session),
            Some(_) | None => Error::Db(error),
        })?;
        for (of, max) in [("code <> ''", EGRESS_REFUSALS_MAX), ("true", EGRESS_ACCESSES_MAX)] {
            let sql = format!(
                "delete from egress_access where tenant_id = $1 and session_id = $2 and {of} and id <=
                   (select id from egress_access where tenant_id = $1 and session_id = $2 and {of} order by id desc offset $3 limit 1)"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(tenant.0)
                .bind(session.as_str())
                .bind(max)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(())
    }
}
