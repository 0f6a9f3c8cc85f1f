//! Manifests of images, and the indexes that list them by platform.

use super::digest::Digest;
use crate::images::error::ImageError;
use domain::text;
use oci_spec::image::{Descriptor, ImageIndex, ImageManifest};
use serde::{Deserialize, de::IgnoredAny};
use std::env::consts;

/// Layers of one image, as many as the sandbox takes. Beyond it: `image_too_large`.
const LAYERS_MAX: usize = 128;
/// Bytes of one layer as the registry stores it. Beyond it: `image_too_large`.
const BLOB_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;
/// Platforms that an error names. It leaves out the others.
const PLATFORMS_SHOWN_MAX: usize = 10;
/// Bytes of a text of the registry in an error. The rest is cut.
const TEXT_BYTES_MAX: usize = 100;

const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const MANIFEST_TYPES: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";
/// The types of Docker's old manifests.
const SCHEMA1: &str = "application/vnd.docker.distribution.manifest.v1+";
const CONFIGURATIONS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
/// The layers that a sandbox can unpack.
const LAYERS: [&str; 6] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
];
/// The beginnings of the types of layers that registries do not have.
const FOREIGN: [&str; 2] = [
    "application/vnd.oci.image.layer.nondistributable.v1.",
    "application/vnd.docker.image.rootfs.foreign.diff.",
];

/// A document at the name of an image.
#[derive(Debug, PartialEq, Eq)]
pub enum Manifest {
    Image(ImageContent),
    Index(Index),
}

/// The parts of an image.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageContent {
    pub configuration: Digest,
    /// Its layers, lowest first.
    pub layers: Vec<Layer>,
}

/// A layer as the registry stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The digest of its bytes.
    pub digest: Digest,
    pub bytes: u64,
    /// One of those that a sandbox unpacks.
    pub media_type: &'static str,
}

/// The images of several platforms.
#[derive(Debug, PartialEq, Eq)]
pub struct Index(Vec<Descriptor>);

/// A platform, in the words of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Platform {
    /// For example `amd64`.
    pub architecture: &'static str,
}

/// What tells the kinds of documents apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline {
    schema_version: u64,
    media_type: Option<String>,
    manifests: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
}

impl Manifest {
    /// Parses a document that the registry sent with a media type; empty: with none.
    ///
    /// # Errors
    /// `Unsupported`, `TooLarge`.
    pub fn parse(bytes: &[u8], media_type: &str) -> Result<Self, ImageError> {
        let outline: Outline = parse(bytes)?;
        let inner = outline.media_type.as_deref();
        if outline.schema_version == 1
            || [Some(media_type), inner].iter().flatten().any(|name| name.starts_with(SCHEMA1))
        {
            let text = "the image has a manifest of Docker's schema 1, which is obsolete; push it again with a current tool";
            return Err(ImageError::Unsupported(text.to_owned()));
        }
        // A document that is both would be another image for another reader.
        let is_index = match (outline.manifests, outline.layers) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(_), Some(_)) | (None, None) => {
                return Err(unreadable("it must have either layers or manifests"));
            }
        };
        let (own, other) = if is_index {
            ([OCI_INDEX, DOCKER_INDEX], [OCI_MANIFEST, DOCKER_MANIFEST])
        } else {
            ([OCI_MANIFEST, DOCKER_MANIFEST], [OCI_INDEX, DOCKER_INDEX])
        };
        if inner.is_some_and(|name| !own.contains(&name)) || other.contains(&media_type) {
            return Err(unreadable("its media type and its content do not fit"));
        }
        if is_index {
            Ok(Self::Index(Index(parse::<ImageIndex>(bytes)?.manifests().clone())))
        } else {
            ImageContent::new(&parse(bytes)?).map(Self::Image)
        }
    }
}

impl ImageContent {
    fn new(manifest: &ImageManifest) -> Result<Self, ImageError> {
        let media_type = manifest.config().media_type().to_string();
        if !CONFIGURATIONS.contains(&media_type.as_str()) {
            let text = format!(
                "this is not an image of a container: its configuration has the media type {}",
                quote(&media_type)
            );
            return Err(ImageError::Unsupported(text));
        }
        let count = manifest.layers().len();
        if count > LAYERS_MAX {
            let text =
                format!("the image has {count} layers, the limit is {LAYERS_MAX}; build it with fewer steps");
            return Err(ImageError::TooLarge(text));
        }
        let layers = manifest.layers().iter().map(Layer::new).collect::<Result<_, _>>()?;
        Ok(Self { configuration: digest(manifest.config())?, layers })
    }
}

impl Layer {
    fn new(descriptor: &Descriptor) -> Result<Self, ImageError> {
        let (digest, name) = (digest(descriptor)?, descriptor.media_type().to_string());
        if FOREIGN.iter().any(|foreign| name.starts_with(foreign)) {
            let text = format!(
                "the layer {digest} is foreign ({}): registries do not have its content",
                quote(&name)
            );
            return Err(ImageError::Unsupported(text));
        }
        let media_type = LAYERS.into_iter().find(|known| *known == name).ok_or_else(|| {
            let text = format!(
                "the layer {digest} has the media type {}, which no sandbox unpacks; use tar, gzip or zstd",
                quote(&name)
            );
            ImageError::Unsupported(text)
        })?;
        let bytes = descriptor.size();
        if bytes > BLOB_BYTES_MAX {
            let text = format!("the layer {digest} has {bytes} bytes, the limit is {BLOB_BYTES_MAX} bytes");
            return Err(ImageError::TooLarge(text));
        }
        Ok(Self { digest, bytes, media_type })
    }
}

impl Index {
    /// The digest of the manifest for a platform.
    ///
    /// # Errors
    /// `Unsupported`: there is none.
    pub fn choose(&self, platform: Platform) -> Result<Digest, ImageError> {
        let own =
            self.0.iter().find(|image| image.platform().as_ref().is_some_and(|found| platform.runs(found)));
        own.map_or_else(
            || {
                let listed = self.0.iter().filter_map(|image| image.platform().as_ref());
                let listed = listed.map(|found| format!("{}/{}", found.os(), found.architecture()));
                let listed: Vec<String> = listed.take(PLATFORMS_SHOWN_MAX).collect();
                Err(platform.unsupported(&listed.join(", ")))
            },
            digest,
        )
    }
}

impl Platform {
    /// The platform of this machine.
    pub fn own() -> Self {
        let architecture = match consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { architecture }
    }

    /// Checks what the configuration of an image says. An image that says nothing is for every machine.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(super) fn check(self, os: &str, architecture: &str) -> Result<(), ImageError> {
        let fits = ["", "linux"].contains(&os) && ["", self.architecture].contains(&architecture);
        if fits { Ok(()) } else { Err(self.unsupported(&format!("{os}/{architecture}"))) }
    }

    /// The plain variant of a processor runs on each of them.
    fn runs(self, platform: &oci_spec::image::Platform) -> bool {
        let variant = platform.variant().as_deref().unwrap_or_default();
        let is_plain = variant.is_empty() || self.architecture == "arm64" && variant == "v8";
        is_plain
            && platform.os().to_string() == "linux"
            && platform.architecture().to_string() == self.architecture
    }

    fn unsupported(self, listed: &str) -> ImageError {
        let own = self.architecture;
        ImageError::Unsupported(format!("the image is for {}; this machine needs linux/{own}", quote(listed)))
    }
}

/// Parses JSON of a registry. The error says where it is wrong and repeats nothing of it.
pub(super) fn parse<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes)
        .map_err(|error| unreadable(&format!("line {}, column {}", error.line(), error.column())))
}

pub(super) fn unreadable(reason: &str) -> ImageError {
    ImageError::Unsupported(format!(
        "the manifest or the configuration of the image cannot be read: {reason}"
    ))
}

fn digest(descriptor: &Descriptor) -> Result<Digest, ImageError> {
    let digest = descriptor.digest().as_ref();
    digest.parse().map_err(|_| {
        ImageError::Unsupported(format!("the digest {} in the manifest is none of SHA-256", quote(digest)))
    })
}

/// A text of the registry for an error: short, and without control characters.
fn quote(text: &str) -> String {
    format!("{:?}", text::head(text, TEXT_BYTES_MAX))
}

#[cfg(test)]
mod tests;
