//! Images of workspaces, and the layers that a tenant has shown to have.

use crate::{
    Store,
    error::{Entity, Error},
};
use domain::{
    ids::{SessionId, TenantId},
    session::image::Image,
};
use sqlx::types::Json;

impl Store {
    /// The image of the workspace of a session that has one of its own; `None`: none was recorded.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_image(&self, tenant: TenantId, owner: &SessionId) -> Result<Option<Image>, Error> {
        let mut statements = self.statements(tenant).await?;
        let image: Option<Option<Json<Image>>> =
            sqlx::query_scalar("select image from session where tenant_id = $1 and id = $2")
                .bind(tenant.0)
                .bind(owner.as_str())
                .fetch_optional(&mut *statements)
                .await?;
        statements.end();
        Ok(image.flatten().map(|image| image.0))
    }

    /// Records the image of a workspace unless there is one, and returns the one that is recorded: another loop of the tree may have been quicker.
    ///
    /// # Errors
    /// `NotFound`: the session is gone. `Db`: recorded or not.
    pub async fn record_image(
        &self,
        tenant: TenantId,
        owner: &SessionId,
        image: &Image,
    ) -> Result<Image, Error> {
        let mut statements = self.statements(tenant).await?;
        let recorded: Option<Json<Image>> = sqlx::query_scalar(
            "update session set image = coalesce(image, $3) where tenant_id = $1 and id = $2 returning image",
        )
        .bind(tenant.0)
        .bind(owner.as_str())
        .bind(Json(image))
        .fetch_optional(&mut *statements)
        .await?;
        statements.end();
        Ok(recorded.ok_or(Error::NotFound(Entity::Session))?.0)
    }

    /// Which of these layers the tenant has shown to have.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_shown_layers(
        &self,
        tenant: TenantId,
        diff_ids: &[String],
    ) -> Result<Vec<String>, Error> {
        let mut statements = self.statements(tenant).await?;
        let shown =
            sqlx::query_scalar("select diff_id from tenant_layer where tenant_id = $1 and diff_id = any($2)")
                .bind(tenant.0)
                .bind(diff_ids)
                .fetch_all(&mut *statements)
                .await?;
        statements.end();
        Ok(shown)
    }

    /// Records that the tenant has shown to have a layer.
    ///
    /// # Errors
    /// `Db`: recorded or not.
    pub async fn note_shown_layer(&self, tenant: TenantId, diff_id: &str) -> Result<(), Error> {
        let insert = sqlx::query(
            "insert into tenant_layer (tenant_id, diff_id) values ($1, $2) on conflict do nothing",
        )
        .bind(tenant.0)
        .bind(diff_id);
        self.statements(tenant).await?.run(insert).await?;
        Ok(())
    }
}
