//! The name of an image: a registry, a repository in it, and a tag or a digest.

use super::digest::Digest;
use crate::images::error::ImageError;
use domain::limits::IMAGE_REFERENCE_BYTES_MAX;
use oci_spec::distribution::Reference;
use std::{fmt, str::FromStr};

/// A reference in its full spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    reference: Reference,
    digest: Option<Digest>,
}

impl ImageReference {
    /// The host of the registry, perhaps with a port.
    pub(crate) fn registry(&self) -> &str {
        self.reference.resolve_registry()
    }

    /// The repository in the registry.
    pub(crate) fn repository(&self) -> &str {
        self.reference.repository()
    }

    /// The digest; `None`: the reference has only a tag.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// What names the manifest in the repository. A digest wins over a tag.
    pub(crate) fn manifest_name(&self) -> &str {
        let tag = || self.reference.tag().unwrap_or_default();
        self.digest.as_ref().map_or_else(tag, Digest::as_str)
    }

    /// The same image by its digest alone.
    #[must_use]
    pub(crate) fn with_digest(&self, digest: Digest) -> Self {
        let reference = self.reference.clone_with_digest(digest.to_string());
        Self { reference, digest: Some(digest) }
    }
}

impl FromStr for ImageReference {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        if text.len() > IMAGE_REFERENCE_BYTES_MAX {
            return Err(ImageError::ReferenceInvalid("the reference of the image is too long"));
        }
        let invalid = |_| ImageError::ReferenceInvalid("the reference of the image is malformed");
        let reference: Reference = text.parse().map_err(invalid)?;
        // The parser takes a first part in capitals for a host, and then for a part of the repository.
        if reference.repository().bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(ImageError::ReferenceInvalid("the name of the image has capital letters"));
        }
        let digest = reference.digest().map(str::parse).transpose();
        let digest = digest.map_err(|_| {
            ImageError::ReferenceInvalid("the digest of the image is none of SHA-256 in small letters")
        })?;
        Ok(Self { reference, digest })
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reference.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn references_have_one_full_spelling() {
        let digest = Digest::of(b"x");
        for (text, registry, repository, name) in [
            ("debian", "index.docker.io", "library/debian", "latest"),
            ("acme/dev:1", "index.docker.io", "acme/dev", "1"),
            ("ghcr.io/acme/dev/deep:v1.2", "ghcr.io", "acme/dev/deep", "v1.2"),
            ("localhost:5000/app", "localhost:5000", "app", "latest"),
            (&format!("10.0.0.1:5000/app:old@{digest}"), "10.0.0.1:5000", "app", digest.as_str()),
        ] {
            let reference: ImageReference = text.parse().unwrap();
            let parts = (reference.registry(), reference.repository(), reference.manifest_name());
            assert_eq!(parts, (registry, repository, name), "{text}");
        }
        let reference: ImageReference = "ghcr.io/acme/dev:1".parse().unwrap();
        assert_eq!(reference.with_digest(digest.clone()).to_string(), format!("ghcr.io/acme/dev@{digest}"));
    }

    #[test]
    fn what_is_no_reference_is_not_repeated() {
        let long = format!("ghcr.io/{}", "a/".repeat(260));
        for text in [
            "",
            " debian",
            "Debian",
            "Acme/dev",
            "https://ghcr.io/a",
            "ghcr.io/../a",
            "ghcr.io/a:1@sha256:12",
            "ghcr.io/a?x=1",
            "ghcr.io/a#x",
            "user:hunter2@ghcr.io/a",
            "ghcr.io/a\r\nx",
            &format!("a@sha512:{}", "0".repeat(128)),
            &format!("a@sha256:{}", "A".repeat(64)),
            &long,
        ] {
            let error = text.parse::<ImageReference>().unwrap_err();
            assert_eq!(error.code().as_str(), "image_reference_invalid", "{text}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
