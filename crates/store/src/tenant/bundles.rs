//! Uploaded git bundles, named by their SHA-256 and stored in pieces of at most 1 MiB.

use crate::{
    Store,
    column::{signed, unsigned},
    error::{Entity, Error},
};
use domain::{ids::TenantId, limits};
use sqlx::Row as _;

impl Store {
    /// Says whether the whole bundle is stored.
    ///
    /// # Errors
    /// `Db`.
    pub async fn has_bundle(&self, tenant: TenantId, id: &str) -> Result<bool, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query("select 1 from bundle where tenant_id = $1 and id = $2 and complete")
            .bind(tenant.0)
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?;
        Ok(row.is_some())
    }

    /// Begins an upload or restarts it. New pieces replace those of an unfinished upload. A complete bundle stays as it is.
    ///
    /// # Errors
    /// `Db`.
    pub async fn begin_bundle(&self, tenant: TenantId, id: &str, size_bytes: u64) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        sqlx::query(
            "insert into bundle (tenant_id, id, size_bytes) values ($1, $2, $3)
             on conflict (tenant_id, id) do update set size_bytes = excluded.size_bytes where not bundle.complete",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(signed(size_bytes))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Stores one piece, counted from 0. All pieces except the last have `limits::BUNDLE_PIECE_BYTES` bytes. The pieces of a
    /// complete bundle stay as they are.
    ///
    /// # Errors
    /// `Db`.
    pub async fn put_bundle_piece(
        &self,
        tenant: TenantId,
        id: &str,
        piece: i32,
        data: &[u8],
    ) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        sqlx::query(
            "insert into bundle_piece (tenant_id, bundle_id, piece, data)
             select $1, $2, $3, $4 where not exists
               (select 1 from bundle where tenant_id = $1 and id = $2 and complete)
             on conflict (tenant_id, bundle_id, piece) do update set data = excluded.data",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(piece)
        .bind(data)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Marks a bundle as complete: every byte is stored and checked.
    ///
    /// # Errors
    /// `Db`.
    pub async fn complete_bundle(&self, tenant: TenantId, id: &str) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        sqlx::query("update bundle set complete = true where tenant_id = $1 and id = $2")
            .bind(tenant.0)
            .bind(id)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Returns the size of a complete bundle, in bytes.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_bundle_size(&self, tenant: TenantId, id: &str) -> Result<u64, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query("select size_bytes from bundle where tenant_id = $1 and id = $2 and complete")
            .bind(tenant.0)
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?
            .ok_or(Error::NotFound(Entity::Bundle))?;
        Ok(unsigned(row.try_get("size_bytes")?))
    }

    /// Returns one piece; `None` after the last.
    ///
    /// # Errors
    /// An earlier, failed upload may have left pieces after the end.
    pub async fn find_bundle_piece(
        &self,
        tenant: TenantId,
        id: &str,
        piece: i32,
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "select p.data from bundle_piece p join bundle b on b.tenant_id = p.tenant_id and b.id = p.bundle_id
              where p.tenant_id = $1 and p.bundle_id = $2 and p.piece = $3 and b.complete
                and p.piece * $4::bigint < b.size_bytes",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(piece)
        // An earlier upload that failed may have left pieces after the end.
        .bind(signed(limits::BUNDLE_PIECE_BYTES as u64))
        .fetch_optional(&mut *tx)
        .await?;
        Ok(row.map(|row| row.try_get("data")).transpose()?)
    }
}
