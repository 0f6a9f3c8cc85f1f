//! What works: images by tag and digest, for this machine, from registries that are busy or keep blobs elsewhere.

use crate::harness::{Broker, read};
use rpc::v1;
use testkit::registry::{
    Registry,
    content::{self, LAYER},
    rules::Fault,
};

/// A port on which nobody listens.
const NOBODY: &str = "127.0.0.1:1";

#[tokio::test]
async fn an_image_is_resolved_by_tag_and_digest_and_pulled() {
    let registry = Registry::start().await;
    let large = vec![7; 3 * rpc::CHUNK_BYTES + 5];
    let image = registry.push_image("acme/dev", &[b"lower", &large]);
    let broker = Broker::for_registries(&[&registry]).await;
    let resolved = broker.resolve(&format!("{}:latest", image.name), "").await.unwrap();
    let layer = |digest: &String, bytes: usize| v1::ImageLayer {
        blob_digest: digest.clone(),
        blob_bytes: bytes as u64,
        media_type: LAYER.to_owned(),
        diff_id: digest.clone(),
    };
    let want = v1::ResolveImageResponse {
        digest: image.digest.clone(),
        reference: image.reference.clone(),
        layers: vec![layer(&image.layers[0], 5), layer(&image.layers[1], large.len())],
        config: Some(v1::ImageConfig {
            env: vec![content::PATH.to_owned()],
            working_dir: "/app".to_owned(),
            user: "agent".to_owned(),
        }),
    };
    assert_eq!(resolved, want);
    assert_eq!(broker.resolve(&image.name, "").await.unwrap(), want, "latest is the tag without a tag");
    assert_eq!(broker.resolve(&image.reference, "").await.unwrap(), want);
    assert_eq!(broker.pull(&image.reference, &image.layers[0]).await.unwrap(), b"lower");
    let mut stream = broker.open(broker.tenants[0], &image.reference, &image.layers[1]).await.unwrap();
    let first = stream.message().await.unwrap().unwrap().data;
    assert!(first.len() <= rpc::CHUNK_BYTES, "{}", first.len());
    assert_eq!([first, read(stream).await.unwrap()].concat(), large);
}

#[tokio::test]
async fn the_manifest_is_loaded_once_for_all_layers_and_again_by_a_broker_that_does_not_know_it() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"one", b"two"]);
    let broker = Broker::for_registries(&[&registry]).await;
    for layer in &image.layers {
        broker.pull(&image.reference, layer).await.unwrap();
    }
    let manifests = |path: &str| path.contains("/manifests/");
    assert_eq!(registry.requests().iter().filter(|request| manifests(&request.path)).count(), 1);
    let refused = broker.pull(&image.reference, &image.configuration).await.unwrap_err();
    assert_eq!(refused, "argument_invalid: the blob is no layer of the image");
    let refused = broker.pull(&image.name, &image.layers[0]).await.unwrap_err();
    assert!(refused.starts_with("image_reference_invalid: "), "{refused}");
}

#[tokio::test]
async fn an_index_leads_to_the_image_for_this_machine() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    let other = if content::architecture() == "arm64" { "amd64" } else { "arm64" };
    let index =
        content::index(&[(other, &content::digest(b"other")), (content::architecture(), &image.digest)]);
    let digest = registry.push_manifest("app", "multi", index);
    registry.push_manifest("app", "foreign", content::index(&[(other, &image.digest)]));
    registry.push_manifest("app", "nested", content::index(&[(content::architecture(), &digest)]));
    let broker = Broker::for_registries(&[&registry]).await;
    for reference in [format!("{}:multi", image.name), format!("{}@{digest}", image.name)] {
        let resolved = broker.resolve(&reference, "").await.unwrap();
        assert_eq!((resolved.digest, resolved.reference), (image.digest.clone(), image.reference.clone()));
    }
    let refused = broker.refusal(&format!("{}:foreign", image.name), "").await;
    assert!(
        refused.starts_with("image_unsupported: ") && refused.contains(&format!("linux/{other}")),
        "{refused}"
    );
    let refused = broker.refusal(&format!("{}:nested", image.name), "").await;
    assert!(refused.starts_with("image_unsupported: "), "{refused}");
}

#[tokio::test]
async fn a_busy_or_broken_registry_is_asked_again_but_not_for_ever() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    let broker = Broker::for_registries(&[&registry]).await;
    let fails = |code, times, retry_after| Fault::Status { code, times, retry_after };
    for fault in [fails(429, 1, Some(0)), fails(503, 2, None), fails(500, 1, None)] {
        registry.fail("latest", fault.clone());
        assert!(broker.resolve(&image.name, "").await.is_ok(), "{fault:?}");
    }
    for (fault, want) in [
        (fails(429, 100, Some(0)), "registry_busy: "),
        (fails(503, 100, Some(0)), "registry_failed: "),
        // Nobody waits an hour.
        (fails(429, 1, Some(3_600)), "registry_busy: "),
    ] {
        registry.fail("latest", fault.clone());
        let before = registry.requests().len();
        let refused = broker.refusal(&image.name, "").await;
        assert!(refused.starts_with(want), "{fault:?}: {refused}");
        assert!(registry.requests().len() - before <= 4, "{fault:?}");
    }
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    let broker = Broker::start(&["--registry-plaintext", &format!("{},{NOBODY}", registry.host)]).await;
    for reference in [
        format!("{}:2", image.name),
        format!("{}/other", registry.host),
        format!("{}@{}", image.name, content::digest(b"other")),
    ] {
        let refused = broker.refusal(&reference, "").await;
        assert!(refused.starts_with("image_unknown: ") && refused.contains(&registry.host), "{refused}");
    }
    registry.fail(&image.layers[0], Fault::Status { code: 404, times: 1, retry_after: None });
    let refused = broker.pull(&image.reference, &image.layers[0]).await.unwrap_err();
    assert!(refused.starts_with("image_unknown: ") && refused.contains(&image.layers[0]), "{refused}");
    let refused = broker.refusal(&format!("{NOBODY}/app"), "").await;
    assert!(refused.starts_with("registry_unreachable: cannot reach 127.0.0.1:1: "), "{refused}");
    for reference in ["", "Upper/case", "https://ghcr.io/app", "user:hunter2@ghcr.io/app"] {
        let refused = broker.refusal(reference, "").await;
        assert!(
            refused.starts_with("image_reference_invalid: ") && !refused.contains("hunter2"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn every_resolve_and_every_layer_leaves_a_line_of_audit() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    let broker = Broker::for_registries(&[&registry]).await;
    broker.put_secret(None, "REGISTRY", "ann:hunter2").await;
    broker.resolve(&image.name, "REGISTRY").await.unwrap();
    broker.resolve(&format!("{}:2", image.name), "").await.unwrap_err();
    broker.pull(&image.reference, &image.layers[0]).await.unwrap();
    let lines = broker.audit();
    let shown: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |name: &str| line.get(name).and_then(|value| value.as_str()).unwrap_or_default();
            let bytes = line["bytes"].as_u64().unwrap();
            (text("message"), text("outcome"), text("secret.name"), text("image.blob"), bytes > 0)
        })
        .collect();
    let want = [
        ("an image was resolved", "ok", "REGISTRY", "", true),
        ("an image was resolved", "image_unknown", "", "", false),
        ("an image was pulled", "ok", "", image.layers[0].as_str(), true),
    ];
    assert_eq!(shown, want);
    let tenant = broker.tenants[0].to_string();
    assert!(lines.iter().all(|line| line["tenant.id"] == tenant.as_str()), "{lines:?}");
    assert_eq!((&lines[0]["secret.version"], &lines[2]["bytes"]), (&1.into(), &5.into()));
    assert_eq!(lines[0]["project.id"], broker.project.as_str());
}
