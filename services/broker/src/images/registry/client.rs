//! One repository of one registry, for one call.

use super::{
    credential::{Credential, NamedCredential},
    http::{self, BodyBound, Http, HttpRequest, host_of},
    token::AuthorizationRequest,
};
use crate::{
    credential,
    images::{
        content::{digest::Digest, manifest::MANIFEST_TYPES, reference::ImageReference},
        error::ImageError,
    },
};
use reqwest::{
    Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue, LOCATION},
};
use std::{sync::Arc, time::Duration};

/// Bytes of a manifest or an index. Beyond it: `image_too_large`.
const MANIFEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of the configuration of an image. Beyond it: `image_too_large`.
const CONFIGURATION_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Redirects of one blob. Beyond it: `registry_failed`.
const REDIRECTS_MAX: usize = 5;

/// A repository, and what opens it.
pub(crate) struct Repository {
    http: Arc<Http>,
    root: Url,
    reference: ImageReference,
    credential: Option<NamedCredential>,
    authorization: Option<HeaderValue>,
}

/// A manifest as the registry sent it.
pub(crate) struct ManifestDocument {
    pub(crate) digest: Digest,
    pub(crate) bytes: Vec<u8>,
    /// The type that the registry names; empty: none.
    pub(crate) media_type: String,
}

impl Repository {
    /// # Errors
    /// `ReferenceInvalid`, `CredentialMalformed`.
    pub(crate) fn new(
        http: Arc<Http>,
        reference: ImageReference,
        credential: Option<NamedCredential>,
    ) -> Result<Self, ImageError> {
        let root = http.hosts.root(reference.registry());
        let root = root.ok_or(ImageError::ReferenceInvalid("the registry of the image is no host"))?;
        let authorization = match &credential {
            Some(NamedCredential { name, credential: Credential::Bearer(token), .. }) => {
                let header = credential::bearer(token);
                Some(header.ok_or_else(|| ImageError::CredentialMalformed(name.clone()))?)
            }
            _ => None,
        };
        Ok(Self { http, root, reference, credential, authorization })
    }

    /// Loads a manifest by its tag or digest.
    ///
    /// # Errors
    /// `DigestWrong` if it has another digest than its name; `Unknown`, `TooLarge`, and those of credentials and requests.
    pub(crate) async fn manifest(&mut self, name: &str) -> Result<ManifestDocument, ImageError> {
        let mut request = HttpRequest::get(self.url("manifests", name)?);
        request.headers.insert(ACCEPT, HeaderValue::from_static(MANIFEST_TYPES));
        request.timeout = Some(self.http.patience.document);
        let response = self.send(request).await?;
        let response = self.check(response, "the image")?;
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type =
            media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned();
        let bound = BodyBound { bytes: MANIFEST_BYTES_MAX, subject: "the manifest of the image" };
        let bytes = http::read(response, bound).await?;
        let digest = Digest::of(&bytes);
        if name.parse::<Digest>().is_ok_and(|wanted| wanted != digest) {
            return Err(ImageError::DigestWrong(format!("the manifest {name} has the digest {digest}")));
        }
        Ok(ManifestDocument { digest, bytes, media_type })
    }

    /// Loads the configuration of the image.
    ///
    /// # Errors
    /// Those of manifests.
    pub(crate) async fn configuration(&mut self, wanted: &Digest) -> Result<Vec<u8>, ImageError> {
        let response = self.blob(wanted, Some(self.http.patience.document)).await?;
        let bound = BodyBound { bytes: CONFIGURATION_BYTES_MAX, subject: "the configuration of the image" };
        let bytes = http::read(response, bound).await?;
        let digest = Digest::of(&bytes);
        if digest != *wanted {
            let text = format!("the configuration {wanted} of the image has the digest {digest}");
            return Err(ImageError::DigestWrong(text));
        }
        Ok(bytes)
    }

    /// Opens a blob, wherever the registry keeps it. The body is not read yet.
    ///
    /// # Errors
    /// `Unknown`, and those of credentials and requests.
    pub(crate) async fn blob(
        &mut self,
        digest: &Digest,
        timeout: Option<Duration>,
    ) -> Result<Response, ImageError> {
        let subject = format!("the blob {digest} of the image");
        let url = self.url("blobs", digest.as_str())?;
        let mut response = self.send(HttpRequest { timeout, ..HttpRequest::get(url) }).await?;
        for _ in 0..REDIRECTS_MAX {
            if !response.status().is_redirection() {
                return self.check(response, &subject);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let url = location.and_then(|location| response.url().join(location).ok());
            let reason = "it redirects to nowhere".to_owned();
            let url = url.ok_or_else(|| ImageError::Failed { host: host_of(response.url()), reason })?;
            // Without the authorization: the signature in the URL is enough, and the host is another one.
            response = self.http.send(&HttpRequest { timeout, ..HttpRequest::get(url) }).await?;
        }
        let reason = format!("it redirects more than {REDIRECTS_MAX} times");
        Err(ImageError::Failed { host: host_of(&self.root), reason })
    }

    /// The registry takes only what the grammar of references and digests allows, so no name leaves its place in the path.
    fn url(&self, kind: &str, name: &str) -> Result<Url, ImageError> {
        let path = format!("{}/{kind}/{name}", self.reference.repository());
        self.root.join(&path).map_err(|_| ImageError::ReferenceInvalid("the reference makes no URL"))
    }

    /// Asks the registry, and once more if it wants to be convinced.
    async fn send(&mut self, mut request: HttpRequest) -> Result<Response, ImageError> {
        request.authorize(self.authorization.as_ref());
        let response = self.http.send(&request).await?;
        if response.status() != StatusCode::UNAUTHORIZED || self.authorization.is_some() {
            return Ok(response);
        }
        let authorization = self.authorization_request().authorize(&self.http, response.headers()).await?;
        request.authorize(Some(&authorization));
        self.authorization = Some(authorization);
        self.http.send(&request).await
    }

    fn authorization_request(&self) -> AuthorizationRequest<'_> {
        AuthorizationRequest {
            registry: self.reference.registry(),
            repository: self.reference.repository(),
            credential: self.credential.as_ref(),
        }
    }

    /// Gives an answer that has what was asked for.
    fn check(&self, response: Response, subject: &str) -> Result<Response, ImageError> {
        let (host, registry) = (host_of(response.url()), self.reference.registry());
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::NOT_FOUND => {
                let subject = format!("{subject} {}", self.reference);
                Err(ImageError::Unknown { registry: registry.to_owned(), subject })
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if host == host_of(&self.root) => {
                Err(self.authorization_request().refused(registry))
            }
            status if status.is_redirection() => {
                let reason = "it redirects the manifest; only blobs may be elsewhere".to_owned();
                Err(ImageError::Failed { host, reason })
            }
            status => Err(ImageError::Failed { host, reason: format!("it answered {}", status.as_u16()) }),
        }
    }
}
