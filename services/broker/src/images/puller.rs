//! Resolves images and pulls their layers, in the name of tenants.

use super::{
    audit::AuditLine,
    content::{
        configuration::Configuration,
        digest::Digest,
        manifest::{ImageContent, Layer, Manifest, Platform},
        reference::ImageReference,
    },
    error::ImageError,
    known::KnownLayers,
    patience::Patience,
    registry::{
        blob::BlobReader,
        client::{ManifestDocument, Repository},
        credential::{Credential, NamedCredential},
        hosts::Hosts,
        http::Http,
    },
    request::ImageRequest,
    stream::{LayerStream, Transfer},
};
use crate::secrets::vault::{OpenedSecret, SecretUse, Vault, VaultError};
use chassis::{Service, tasks::Tasks};
use domain::{
    egress::{git::GitAddress, secret_servers::SecretDestination},
    ids::TenantId,
};
use rpc::v1::ErrorCode;
use shares::{Busy, Permit, Shares};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Images that this process resolves at once; a tenant three quarters of them. Further calls wait for a minute. Beyond it: `registry_busy`.
const RESOLVES_MAX: u32 = 32;
/// Layers that this process pulls at once; a tenant three quarters of them. Further calls wait for a minute. Beyond it: `registry_busy`.
const PULLS_MAX: u32 = 16;
/// The setting that names credentials, for the audit of secrets.
const PURPOSE: &str = "environment.image";

#[derive(Debug)]
pub struct Puller {
    vault: Arc<Vault>,
    http: Arc<Http>,
    known: KnownLayers,
    resolves: Shares<TenantId>,
    pulls: Shares<TenantId>,
    tasks: Tasks,
    shutdown: CancellationToken,
}

/// Why an image is not resolved or pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The call asks for a blob of something else.
    #[error("the blob is no layer of the image")]
    BlobUnknown,
    /// The image, or its registry.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The credential cannot be opened.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl PullError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::BlobUnknown => ErrorCode::ArgumentInvalid,
            Self::Image(error) => error.code(),
            Self::Vault(error) => error.code(),
        }
    }
}

/// An image by its digest.
#[derive(Debug, PartialEq, Eq)]
pub struct ResolvedImage {
    /// The digest of its manifest.
    pub digest: Digest,
    /// The reference with this digest.
    pub reference: ImageReference,
    /// Its layers, lowest first: as many as the configuration has digests of unpacked layers.
    pub layers: Vec<Layer>,
    pub configuration: Configuration,
}

impl Puller {
    /// # Errors
    /// The certificates of this system cannot be used.
    pub fn new(
        vault: Arc<Vault>,
        hosts: Hosts,
        patience: Patience,
        service: &Service,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self {
            vault,
            http: Arc::new(Http::new(hosts, patience)?),
            known: KnownLayers::default(),
            resolves: Shares::three_quarters(RESOLVES_MAX),
            pulls: Shares::three_quarters(PULLS_MAX),
            tasks: service.tasks.clone(),
            shutdown: service.shutdown.clone(),
        })
    }

    /// Asks the registry what an image consists of.
    ///
    /// # Errors
    /// `Image`, `Vault`.
    ///
    /// Dropped midway: only the registry and the audit know of it.
    pub async fn resolve(&self, request: &ImageRequest) -> Result<ResolvedImage, PullError> {
        let mut audit = AuditLine::new("resolved", request);
        let resolved = self.find_image(request, &mut audit).await;
        audit.note_outcome(resolved.as_ref().err().map_or("ok", |error| error.code().as_str()));
        resolved
    }

    /// Opens a layer of an image, which the request names by digest. The stream has its bytes, unchanged and checked.
    ///
    /// # Errors
    /// `Image`, `Vault`.
    ///
    /// Dropped midway, or if the stream is dropped: the connection to the registry is closed.
    pub async fn pull(&self, request: &ImageRequest, layer: &Digest) -> Result<LayerStream, PullError> {
        let mut audit = AuditLine::new("pulled", request);
        audit.blob = layer.to_string();
        let (blob, permit) = match self.open(request, layer, &mut audit).await {
            Ok(opened) => opened,
            Err(error) => {
                audit.note_outcome(error.code().as_str());
                return Err(error);
            }
        };
        let (patience, shutdown) = (self.http.patience, self.shutdown.clone());
        let (work, stream) = Transfer { blob, audit, patience, shutdown, permit }.start();
        self.tasks.spawn("pull of a layer", work);
        Ok(stream)
    }

    async fn find_image(
        &self,
        request: &ImageRequest,
        audit: &mut AuditLine,
    ) -> Result<ResolvedImage, PullError> {
        let _permit = self.permit(&self.resolves, request.tenant).await?;
        let mut repository = self.repository(request, audit).await?;
        let name = request.reference.manifest_name();
        let (digest, manifest) = load(&mut repository, name, audit).await?;
        let (digest, image) = match manifest {
            Manifest::Image(image) => (digest, image),
            Manifest::Index(index) => {
                let digest = index.choose(Platform::own())?;
                (digest.clone(), load_image(&mut repository, &digest, audit).await?)
            }
        };
        let configuration = repository.configuration(&image.configuration).await?;
        audit.bytes += configuration.len() as u64;
        let layers = image.layers.len();
        let configuration =
            parse(move || Configuration::parse(&configuration, Platform::own(), layers)).await?;
        self.known.insert(digest.clone(), &image.layers);
        let reference = request.reference.with_digest(digest.clone());
        Ok(ResolvedImage { digest, reference, layers: image.layers, configuration })
    }

    async fn open(
        &self,
        request: &ImageRequest,
        layer: &Digest,
        audit: &mut AuditLine,
    ) -> Result<(BlobReader, Permit), PullError> {
        let reason = "a layer is pulled from an image by digest; resolve the image first";
        let image = request.reference.digest().ok_or(ImageError::ReferenceInvalid(reason))?;
        let permit = self.permit(&self.pulls, request.tenant).await?;
        let mut repository = self.repository(request, audit).await?;
        let layers = match self.known.find(image) {
            Some(layers) => layers,
            None => {
                let content = load_image(&mut repository, image, audit).await?;
                self.known.insert(image.clone(), &content.layers)
            }
        };
        let found = layers.iter().find(|known| known.digest == *layer);
        let found = found.ok_or(PullError::BlobUnknown)?;
        let response = repository.blob(layer, None).await?;
        Ok((BlobReader::new(response, found.clone())?, permit))
    }

    async fn permit(&self, shares: &Shares<TenantId>, tenant: TenantId) -> Result<Permit, ImageError> {
        shares.acquire(tenant, self.http.patience.permit).await.map_err(|busy| {
            ImageError::Busy(match busy {
                Busy::Own => "this tenant already pulls as many images at once as it may".to_owned(),
                Busy::All => "the broker already pulls as many images at once as it can".to_owned(),
            })
        })
    }

    async fn repository(
        &self,
        request: &ImageRequest,
        audit: &mut AuditLine,
    ) -> Result<Repository, PullError> {
        let credential = self.credential(request).await?;
        audit.note_secret(credential.as_ref());
        Ok(Repository::new(Arc::clone(&self.http), request.reference.clone(), credential)?)
    }

    async fn credential(&self, request: &ImageRequest) -> Result<Option<NamedCredential>, PullError> {
        let Some(name) = request.credential.clone() else { return Ok(None) };
        let (registry, repository) = (request.reference.registry(), request.reference.repository());
        let address = GitAddress::parse(registry, &format!("/{repository}")).ok();
        let destination = SecretDestination::Server(address.as_ref());
        let login = SecretUse { purpose: PURPOSE, destination };
        let opened = match self.vault.find(request.tenant, request.project.as_ref(), &name, login).await {
            Err(error @ VaultError::NotFor { .. }) => {
                return Err(ImageError::CredentialNotFor(error.to_string()).into());
            }
            opened => opened?,
        };
        let Some(OpenedSecret { version, value }) = opened else {
            return Err(ImageError::CredentialUnknown(name).into());
        };
        match Credential::parse(&value) {
            Some(credential) => Ok(Some(NamedCredential { name, version, credential })),
            None => Err(ImageError::CredentialMalformed(name).into()),
        }
    }
}

/// Loads a manifest, and returns it with its digest.
async fn load(
    repository: &mut Repository,
    name: &str,
    audit: &mut AuditLine,
) -> Result<(Digest, Manifest), ImageError> {
    let ManifestDocument { digest, bytes, media_type } = repository.manifest(name).await?;
    audit.bytes += bytes.len() as u64;
    let manifest = parse(move || Manifest::parse(&bytes, &media_type)).await?;
    Ok((digest, manifest))
}

/// Parses megabytes where that delays no other call.
async fn parse<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let parsed = tokio::task::spawn_blocking(work).await;
    parsed.unwrap_or(Err(ImageError::Interrupted("the broker failed while it read the image")))
}

/// Loads a manifest that must be one image.
async fn load_image(
    repository: &mut Repository,
    digest: &Digest,
    audit: &mut AuditLine,
) -> Result<ImageContent, ImageError> {
    match load(repository, digest.as_str(), audit).await?.1 {
        Manifest::Image(image) => Ok(image),
        Manifest::Index(_) => Err(ImageError::Unsupported(format!(
            "{digest} lists images for several machines where one image was expected"
        ))),
    }
}
