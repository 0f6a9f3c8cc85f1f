#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use serde_json::{Value, json};

fn descriptor(media_type: &str) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(media_type.as_bytes()).as_str(), "size": 7})
}

fn image() -> Value {
    json!({"schemaVersion": 2, "config": descriptor(CONFIGURATIONS[0]), "layers": [descriptor(LAYERS[1])]})
}

fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[name] = value;
    document
}

fn read(document: &Value, media_type: &str) -> Result<Manifest, ImageError> {
    Manifest::parse(document.to_string().as_bytes(), media_type)
}

/// The code and the text of a refusal.
fn refusal(document: &Value) -> String {
    let error = read(document, "").unwrap_err();
    format!("{}: {error}", error.code().as_str())
}

#[test]
fn every_kind_of_layer_that_sandboxes_unpack_is_read() {
    let layers: Vec<Value> = LAYERS.iter().map(|name| descriptor(name)).collect();
    let document = with(image(), "/layers", json!(layers));
    for media_type in ["", OCI_MANIFEST, DOCKER_MANIFEST, "text/plain"] {
        let Manifest::Image(image) = read(&document, media_type).unwrap() else { panic!("an image") };
        assert_eq!(image.layers.iter().map(|layer| layer.media_type).collect::<Vec<_>>(), LAYERS);
        assert_eq!(image.layers[0].bytes, 7);
    }
    // What this program does not know does not matter.
    assert!(read(&with(image(), "/annotations", json!({"a": "b"})), OCI_MANIFEST).is_ok());
}

#[test]
fn old_foreign_and_unknown_parts_are_refused_by_name() {
    for (document, want) in [
        (with(image(), "/schemaVersion", json!(1)), "schema 1"),
        (json!({"schemaVersion": 1, "fsLayers": []}), "schema 1"),
        (with(image(), "/mediaType", json!(format!("{SCHEMA1}prettyjws"))), "schema 1"),
        (with(image(), "/layers/0/mediaType", json!(format!("{}tar+gzip", FOREIGN[0]))), "is foreign"),
        (with(image(), "/layers/0/mediaType", json!(format!("{}tar.gzip", FOREIGN[1]))), "is foreign"),
        (
            with(image(), "/layers/0/mediaType", json!("application/x\n")),
            r#""application/x\n", which no sandbox unpacks"#,
        ),
        (
            with(image(), "/config/mediaType", json!("application/vnd.cncf.helm.config.v1+json")),
            "not an image of a container",
        ),
        (with(image(), "/layers/0/digest", json!(format!("sha512:{}", "0".repeat(128)))), "none of SHA-256"),
    ] {
        let refusal = refusal(&document);
        assert!(refusal.starts_with("image_unsupported: ") && refusal.contains(want), "{refusal}");
    }
    let error = read(&image(), &format!("{SCHEMA1}prettyjws")).unwrap_err();
    assert!(error.to_string().contains("schema 1"), "{error}");
}

#[test]
fn hostile_documents_are_refused() {
    let (own, index) = (image(), json!({"schemaVersion": 2, "manifests": []}));
    for document in [
        json!(null),
        json!([]),
        json!({"schemaVersion": 2}),
        with(own.clone(), "/schemaVersion", json!("2")),
        with(own.clone(), "/layers", json!({})),
        with(own.clone(), "/layers", json!(["x"])),
        with(own.clone(), "/layers/0/size", json!(-1)),
        with(own.clone(), "/layers/0/size", json!(1.5)),
        with(own.clone(), "/layers/0/size", json!("7")),
        with(own.clone(), "/layers/0/digest", json!("../../etc/passwd")),
        with(own.clone(), "/config", json!(null)),
        // An image for one reader and an index for another.
        with(own.clone(), "/manifests", json!([])),
        with(own.clone(), "/mediaType", json!(OCI_INDEX)),
        with(index.clone(), "/mediaType", json!(OCI_MANIFEST)),
    ] {
        assert!(refusal(&document).starts_with("image_unsupported: "), "{document}");
    }
    assert!(read(&own, OCI_INDEX).is_err() && read(&index, DOCKER_MANIFEST).is_err());
    for bytes in [&b""[..], b"<html>", b"{\"schemaVersion\": 2", &[0xff], "[".repeat(100_000).as_bytes()] {
        assert!(Manifest::parse(bytes, OCI_MANIFEST).is_err());
    }
}

#[test]
fn bounds_of_images() {
    let layers = |count: usize| with(image(), "/layers", json!(vec![descriptor(LAYERS[0]); count]));
    assert!(read(&layers(LAYERS_MAX), "").is_ok());
    assert!(refusal(&layers(LAYERS_MAX + 1)).starts_with("image_too_large: "));
    let sized = |bytes: u64| with(image(), "/layers/0/size", json!(bytes));
    assert!(read(&sized(BLOB_BYTES_MAX), "").is_ok());
    assert!(refusal(&sized(BLOB_BYTES_MAX + 1)).starts_with("image_too_large: "));
    assert!(refusal(&sized(u64::MAX)).starts_with("image_too_large: "));
}

#[test]
fn an_index_gives_the_plain_variant_of_the_machine() {
    let entry = |name: &str, os: &str, architecture: &str, variant: Option<&str>| {
        let platform = json!({"os": os, "architecture": architecture, "variant": variant});
        with(descriptor(name), "/platform", platform)
    };
    let manifests = json!([
        descriptor("without a platform"),
        entry("attestation", "unknown", "unknown", None),
        entry("windows", "windows", "amd64", None),
        entry("new", "linux", "amd64", Some("v3")),
        entry("plain", "linux", "amd64", None),
        entry("arm", "linux", "arm64", Some("v8")),
    ]);
    let document = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests});
    let Manifest::Index(index) = read(&document, OCI_INDEX).unwrap() else { panic!("an index") };
    let choose = |architecture| index.choose(Platform { architecture });
    assert_eq!(choose("amd64"), Ok(Digest::of(b"plain")));
    assert_eq!(choose("arm64"), Ok(Digest::of(b"arm")));
    let error = choose("riscv64").unwrap_err().to_string();
    assert!(error.contains("windows/amd64") && error.contains("linux/riscv64"), "{error}");
    let own = Platform { architecture: "amd64" };
    assert!(own.check("linux", "amd64").is_ok() && own.check("", "").is_ok());
    assert!(own.check("windows", "amd64").is_err() && own.check("linux", "arm64").is_err());
}
