//! Uploaded git bundles, named by their SHA-256 and stored in pieces. An upload has a name of its own until it is whole and checked, so two uploads
//! of the same bundle never mix.

use crate::{
    Store,
    column::{signed, timestamp},
    error::{Entity, Error},
};
use domain::{
    ids::{TenantId, Timestamp},
    limits,
};
use sqlx::Row as _;
use uuid::Uuid;

/// Time between two notes that a bundle is needed; milliseconds. Far less than the time for which an unused bundle is kept.
const USE_NOTED_MS: i64 = 60 * 60 * 1_000;

/// An upload that is not whole yet. Its bytes are a bundle that nobody can name.
#[derive(Debug, Clone)]
pub struct Upload {
    tenant: TenantId,
    id: String,
}

/// What an upload turned out to be.
#[derive(Debug, Clone, Copy)]
pub struct UploadContent<'a> {
    /// The SHA-256 of all bytes, as lowercase hexadecimal digits: the bundle's id.
    pub sha256: &'a str,
    /// The number of bytes.
    pub size_bytes: u64,
    /// Where its sessions begin, if it says so.
    pub head: Option<&'a BundleHead>,
}

/// Where the sessions of a bundle begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleHead {
    pub commit: String,
    /// The branch, without `refs/heads/`.
    pub branch: String,
    /// Whether the bundle has the whole history of the commit.
    pub is_whole: bool,
}

/// The beginning of a stored bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleStart {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    pub created_at: Timestamp,
}

impl UploadContent<'_> {
    fn pieces(&self) -> u64 {
        self.size_bytes.div_ceil(limits::BUNDLE_PIECE_BYTES as u64)
    }
}

impl Store {
    /// Says whether the whole bundle is stored. If so, it is kept long enough for the caller to start a session from it.
    ///
    /// # Errors
    /// `Db`.
    pub async fn has_bundle(&self, tenant: TenantId, id: &str) -> Result<bool, Error> {
        let mut statements = self.statements(tenant).await?;
        // Waits for a removal of the bundle, which the next statement then sees.
        sqlx::query(
            "update bundle set used_at = now()
              where tenant_id = $1 and id = $2 and complete and used_at < now() - $3 * interval '1 millisecond'",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(USE_NOTED_MS)
        .execute(&mut *statements)
        .await?;
        let row = sqlx::query("select 1 from bundle where tenant_id = $1 and id = $2 and complete")
            .bind(tenant.0)
            .bind(id)
            .fetch_optional(&mut *statements)
            .await?;
        statements.end();
        Ok(row.is_some())
    }

    /// Finds the bundle that begins as `head` says. One with more history will do, too. It is kept long enough for the caller to start a session from it.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_bundle_of(&self, tenant: TenantId, head: &BundleHead) -> Result<Option<String>, Error> {
        let query = sqlx::query(
            "select id from bundle
              where tenant_id = $1 and head_commit = $2 and head_branch = $3 and (head_is_whole or not $4) and complete
                and head_commit is not null
              order by head_is_whole desc, created_at desc limit 1",
        )
        .bind(tenant.0)
        .bind(&head.commit)
        .bind(&head.branch)
        .bind(head.is_whole);
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        let Some(row) = row else { return Ok(None) };
        let id: String = row.try_get("id")?;
        // It may be removed meanwhile.
        Ok(self.has_bundle(tenant, &id).await?.then_some(id))
    }

    /// Begins an upload.
    ///
    /// # Errors
    /// `Db`.
    pub async fn begin_upload(&self, tenant: TenantId) -> Result<Upload, Error> {
        let upload = Upload { tenant, id: format!("upload:{}", Uuid::now_v7()) };
        let insert = sqlx::query("insert into bundle (tenant_id, id, size_bytes) values ($1, $2, 0)")
            .bind(tenant.0)
            .bind(&upload.id);
        self.statements(tenant).await?.run(insert).await?;
        Ok(upload)
    }

    /// Stores one piece, counted from 0. All pieces except the last have `limits::BUNDLE_PIECE_BYTES` bytes.
    ///
    /// # Errors
    /// `Db`, also for an upload that was removed because it took too long.
    pub async fn put_upload_piece(&self, upload: &Upload, piece: i32, data: &[u8]) -> Result<(), Error> {
        let insert = sqlx::query(
            "insert into bundle_piece (tenant_id, bundle_id, piece, data) values ($1, $2, $3, $4)
             on conflict (tenant_id, bundle_id, piece) do update set data = excluded.data",
        )
        .bind(upload.tenant.0)
        .bind(&upload.id)
        .bind(piece)
        .bind(data);
        self.statements(upload.tenant).await?.run(insert).await?;
        Ok(())
    }

    /// Turns an upload into a bundle. If the tenant has this bundle already, the upload is removed. The caller has checked the hash.
    ///
    /// # Errors
    /// `NotFound`: the upload was removed because it took too long. `Db`: done or not.
    pub async fn finish_upload(&self, upload: &Upload, content: UploadContent<'_>) -> Result<(), Error> {
        let mut tx = self.begin(upload.tenant).await?;
        // Earlier versions stored the pieces of an unfinished upload under the id of its bundle.
        sqlx::query("delete from bundle where tenant_id = $1 and id = $2 and not complete")
            .bind(upload.tenant.0)
            .bind(content.sha256)
            .execute(&mut *tx)
            .await?;
        let inserted = sqlx::query(
            "insert into bundle (tenant_id, id, size_bytes, complete, head_commit, head_branch, head_is_whole)
             values ($1, $2, $3, true, $4, $5, $6) on conflict do nothing",
        )
        .bind(upload.tenant.0)
        .bind(content.sha256)
        .bind(signed(content.size_bytes))
        .bind(content.head.map(|head| &head.commit))
        .bind(content.head.map(|head| &head.branch))
        .bind(content.head.map(|head| head.is_whole))
        .execute(&mut *tx)
        .await?;
        if inserted.rows_affected() > 0 {
            // The bytes themselves stay where they are.
            let moved =
                sqlx::query("update bundle_piece set bundle_id = $3 where tenant_id = $1 and bundle_id = $2")
                    .bind(upload.tenant.0)
                    .bind(&upload.id)
                    .bind(content.sha256)
                    .execute(&mut *tx)
                    .await?;
            if moved.rows_affected() != content.pieces() {
                return Err(Error::NotFound(Entity::Bundle));
            }
        }
        sqlx::query("delete from bundle where tenant_id = $1 and id = $2")
            .bind(upload.tenant.0)
            .bind(&upload.id)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Removes an upload with its pieces.
    ///
    /// # Errors
    /// `Db`: removed or not.
    pub async fn discard_upload(&self, upload: &Upload) -> Result<(), Error> {
        let delete = sqlx::query("delete from bundle where tenant_id = $1 and id = $2 and not complete")
            .bind(upload.tenant.0)
            .bind(&upload.id);
        self.statements(upload.tenant).await?.run(delete).await?;
        Ok(())
    }

    /// Returns the first bytes of a bundle, and when it was uploaded.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_bundle_start(
        &self,
        tenant: TenantId,
        id: &str,
        bytes: u32,
    ) -> Result<Option<BundleStart>, Error> {
        let query = sqlx::query(
            "select b.created_at, substring(p.data from 1 for $3) as data from bundle b
               join bundle_piece p on p.tenant_id = b.tenant_id and p.bundle_id = b.id and p.piece = 0
              where b.tenant_id = $1 and b.id = $2 and b.complete",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(i32::try_from(bytes).unwrap_or(i32::MAX));
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        let start = |row: sqlx::postgres::PgRow| {
            Ok(BundleStart { bytes: row.try_get("data")?, created_at: timestamp(row.try_get("created_at")?) })
        };
        row.map(start).transpose()
    }

    /// Returns one piece; `None` after the last.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_bundle_piece(
        &self,
        tenant: TenantId,
        id: &str,
        piece: i32,
    ) -> Result<Option<Vec<u8>>, Error> {
        let query = sqlx::query(
            "select p.data from bundle_piece p join bundle b on b.tenant_id = p.tenant_id and b.id = p.bundle_id
              where p.tenant_id = $1 and p.bundle_id = $2 and p.piece = $3 and b.complete
                and p.piece * $4::bigint < b.size_bytes",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(piece)
        // In earlier versions an upload that failed could leave pieces after the end.
        .bind(signed(limits::BUNDLE_PIECE_BYTES as u64));
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        Ok(row.map(|row| row.try_get("data")).transpose()?)
    }
}
