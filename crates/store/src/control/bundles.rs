//! Bundles that nobody needs: uploads that never ended, and bundles from which no session and no project starts.

use crate::{
    Store,
    column::{milliseconds, unsigned},
    error::Error,
};
use sqlx::Row as _;

/// Time for which an unfinished upload is kept; milliseconds. Even the largest upload takes minutes.
const UPLOAD_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;
/// Time for which a bundle is kept after somebody needed it; milliseconds. A client that uploads the same repository again within this time
/// sends no bytes. Beyond it: `bundle_not_found`.
const BUNDLE_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// What one pass over old bundles did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundlePass {
    /// Bundles that it looked at.
    pub seen: u64,
    pub removed: u64,
}

impl Store {
    /// Removes at most `limit` uploads that began long ago and never ended, oldest first. Returns their number.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_uploads(&self, limit: i64) -> Result<u64, Error> {
        let result = sqlx::query(
            "with old as materialized (
               select tenant_id, id from bundle where not complete and created_at > '-infinity' and created_at < now() - $2 * interval '1 millisecond'
                order by created_at limit $1 for update skip locked)
             delete from bundle b using old where b.tenant_id = old.tenant_id and b.id = old.id",
        )
        .bind(limit)
        .bind(milliseconds(UPLOAD_KEPT_MS))
        .execute(&self.system)
        .await?;
        Ok(result.rows_affected())
    }

    /// Looks at the `limit` bundles that were needed longest ago, more than a week. Removes those from which no session and no project
    /// starts, and notes that the others are needed: each bundle is looked at once a week.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_bundles(&self, limit: i64) -> Result<BundlePass, Error> {
        // The indexes on the source have the collation of its expression. A comparison in the collation of `id` would not use them.
        let row = sqlx::query(
            "with old as materialized (
               select tenant_id, id from bundle where complete and used_at > '-infinity' and used_at < now() - $2 * interval '1 millisecond'
                order by used_at limit $1 for update skip locked),
             seen as materialized (
               select tenant_id, id,
                      exists (select 1 from session s where s.tenant_id = old.tenant_id and s.source ->> 'from' = 'bundle'
                                 and s.source ->> 'id' = old.id collate \"default\")
                   or exists (select 1 from project p where p.tenant_id = old.tenant_id and p.source ->> 'from' = 'bundle'
                                 and p.source ->> 'id' = old.id collate \"default\") as is_needed
                 from old),
             needed as (
               update bundle b set used_at = now() from seen
                where b.tenant_id = seen.tenant_id and b.id = seen.id and seen.is_needed),
             removed as (
               delete from bundle b using seen
                where b.tenant_id = seen.tenant_id and b.id = seen.id and not seen.is_needed returning 1)
             select (select count(*) from seen) as seen, (select count(*) from removed) as removed",
        )
        .bind(limit)
        .bind(milliseconds(BUNDLE_KEPT_MS))
        .fetch_one(&self.system)
        .await?;
        Ok(BundlePass { seen: unsigned(row.try_get("seen")?), removed: unsigned(row.try_get("removed")?) })
    }
}
