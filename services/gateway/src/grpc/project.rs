//! `ProjectService`: repositories, and the bundles that are uploaded for them.

use super::{Service, from_store, id, is_text, name, next_cursor, page, to_wire};
use domain::{ids::ProjectId, ids::TenantId, limits};
use rpc::{
    status::invalid,
    v1::{self, project_service_server::ProjectService, upload_bundle_request::Part},
};
use sha2::{Digest as _, Sha256};
use tonic::{Request, Response, Status, Streaming};

#[tonic::async_trait]
impl ProjectService for Service {
    async fn create_project(
        &self,
        request: Request<v1::CreateProjectRequest>,
    ) -> Result<Response<v1::CreateProjectResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let request = request.into_inner();
        let source = self.source(principal.tenant, request.source).await?;
        let (id, name) = (self.0.id(ProjectId::make), name(&request.name)?);
        let project =
            self.0.store.create_project(principal.tenant, &id, &name, &source).await.map_err(from_store)?;
        // Otherwise there was one of this name.
        if project.id == id {
            self.0.tell_project(principal.tenant, &project);
        }
        Ok(Response::new(v1::CreateProjectResponse { project: Some(to_wire::project(project)) }))
    }

    async fn get_project(
        &self,
        request: Request<v1::GetProjectRequest>,
    ) -> Result<Response<v1::GetProjectResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let id = id(&request.get_ref().project_id, "project_not_found", "project")?;
        let project = self.0.store.get_project(principal.tenant, &id).await.map_err(from_store)?;
        Ok(Response::new(v1::GetProjectResponse { project: Some(to_wire::project(project)) }))
    }

    async fn list_projects(
        &self,
        request: Request<v1::ListProjectsRequest>,
    ) -> Result<Response<v1::ListProjectsResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let page = page(request.into_inner().page, is_text)?;
        let projects = self.0.store.list_projects(principal.tenant, &page).await.map_err(from_store)?;
        let next_cursor = next_cursor(&page, &projects, |project| project.name.clone());
        let projects = projects.into_iter().map(to_wire::project).collect();
        Ok(Response::new(v1::ListProjectsResponse { projects, next_cursor }))
    }

    async fn upload_bundle(
        &self,
        request: Request<Streaming<v1::UploadBundleRequest>>,
    ) -> Result<Response<v1::UploadBundleResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let mut stream = request.into_inner();
        let header = match stream.message().await?.and_then(|message| message.part) {
            Some(Part::Header(header)) => checked(header)?,
            Some(Part::Data(_)) | None => {
                return Err(invalid("bundle_invalid", "the first message is the header"));
            }
        };
        if !self.0.store.has_bundle(tenant, &header.sha256).await.map_err(from_store)? {
            self.receive(tenant, &header, stream).await?;
        }
        Ok(Response::new(v1::UploadBundleResponse { bundle_id: header.sha256 }))
    }
}

impl Service {
    /// Checks where files are to come from. What can only be found out by cloning is told by the session.
    ///
    /// # Errors
    /// `url_not_allowed`, `bundle_not_found`, `revision_invalid`.
    pub(super) async fn source(
        &self,
        tenant: TenantId,
        source: Option<v1::Source>,
    ) -> Result<domain::session::Source, Status> {
        let source = to_wire::from_source(source)?;
        if let domain::session::Origin::Bundle(id) = &source.origin {
            if !is_sha256(id) {
                return Err(from_store(store::error::Error::NotFound(store::error::Entity::Bundle)));
            }
            self.0.store.get_bundle_size(tenant, id).await.map_err(from_store)?;
        }
        Ok(source)
    }

    /// Stores the pieces as they come; only a bundle whose hash is right is ever used.
    async fn receive(
        &self,
        tenant: TenantId,
        header: &v1::BundleHeader,
        mut stream: Streaming<v1::UploadBundleRequest>,
    ) -> Result<(), Status> {
        let store = &self.0.store;
        store.begin_bundle(tenant, &header.sha256, header.size_bytes).await.map_err(from_store)?;
        let (mut hash, mut piece, mut gathered, mut received) = (Sha256::new(), 0, Vec::new(), 0_u64);
        while let Some(message) = stream.message().await? {
            let Some(Part::Data(data)) = message.part else {
                return Err(invalid("bundle_invalid", "only the first message is a header"));
            };
            received += data.len() as u64;
            if received > header.size_bytes {
                return Err(invalid("bundle_invalid", "more bytes came than the header said"));
            }
            hash.update(&data);
            gathered.extend_from_slice(&data);
            while gathered.len() >= limits::BUNDLE_PIECE_BYTES {
                let rest = gathered.split_off(limits::BUNDLE_PIECE_BYTES);
                store.put_bundle_piece(tenant, &header.sha256, piece, &gathered).await.map_err(from_store)?;
                (gathered, piece) = (rest, piece + 1);
            }
        }
        if !gathered.is_empty() {
            store.put_bundle_piece(tenant, &header.sha256, piece, &gathered).await.map_err(from_store)?;
        }
        let sha256: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if received != header.size_bytes || sha256 != header.sha256 {
            return Err(invalid(
                "bundle_invalid",
                "the bytes that came are not those that the header named; upload again",
            ));
        }
        store.complete_bundle(tenant, &header.sha256).await.map_err(from_store)
    }
}

fn checked(header: v1::BundleHeader) -> Result<v1::BundleHeader, Status> {
    if header.size_bytes == 0 || header.size_bytes > limits::BUNDLE_BYTES_MAX {
        let message =
            format!("a bundle has from 1 to {} bytes, not {}", limits::BUNDLE_BYTES_MAX, header.size_bytes);
        return Err(invalid("bundle_too_large", message));
    }
    if is_sha256(&header.sha256) {
        Ok(header)
    } else {
        Err(invalid("bundle_invalid", "sha256 is 64 lower-case hexadecimal digits"))
    }
}

/// Bundles are named by their hash.
fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
