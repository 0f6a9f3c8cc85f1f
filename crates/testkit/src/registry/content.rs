//! Small images, as their bytes.

use domain::text;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The media type of an image's manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of an image's configuration.
pub const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
/// The media type of the layers.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The variable of every image.
pub const PATH: &str = "PATH=/usr/local/bin:/usr/bin:/bin";

/// A manifest or an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The type that the registry sends with it.
    pub media_type: String,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedImage {
    pub name: String,
    /// The digest of its manifest.
    pub digest: String,
    /// Its name with its digest.
    pub reference: String,
    /// The digest of its configuration.
    pub configuration: String,
    /// The digests of its layers, lowest first.
    pub layers: Vec<String>,
}

/// The digest of bytes, as registries write it.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", text::hex(&Sha256::digest(bytes)))
}

/// The architecture of this machine, as images call it.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The configuration of an image for this machine with layers that are not compressed.
pub fn configuration(layers: &[&[u8]]) -> Vec<u8> {
    let diff_ids: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    let document = json!({
        "os": "linux",
        "architecture": architecture(),
        "config": {"Env": [PATH], "WorkingDir": "/app", "User": "agent"},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    document.to_string().into_bytes()
}

/// The manifest of an image with layers of these digests and sizes.
pub fn manifest<'a>(configuration: &[u8], layers: impl Iterator<Item = (&'a str, usize)>) -> Document {
    let layers: Vec<Value> = layers.map(|(digest, size)| descriptor(LAYER, digest, size)).collect();
    let config = descriptor(CONFIGURATION, &digest(configuration), configuration.len());
    document(
        MANIFEST,
        &json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}),
    )
}

/// An index of manifests by their architecture, all for linux.
pub fn index(manifests: &[(&str, &str)]) -> Document {
    let entries = manifests.iter().map(|(architecture, digest)| {
        let mut entry = descriptor(MANIFEST, digest, 2);
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entry
    });
    let entries: Vec<Value> = entries.collect();
    document(INDEX, &json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}))
}

pub fn document(media_type: &str, content: &Value) -> Document {
    Document { media_type: media_type.to_owned(), bytes: content.to_string().into_bytes() }
}

fn descriptor(media_type: &str, digest: &str, size: usize) -> Value {
    json!({"mediaType": media_type, "digest": digest, "size": size})
}
