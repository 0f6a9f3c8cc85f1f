//! What registries, and tenants that choose them, may not do. Each attack has a control that passes.

use crate::harness::Broker;
use serde_json::{Value, json};
use testkit::registry::{
    Registry,
    content::{self, CONFIGURATION, Document, LAYER, MANIFEST},
    rules::Fault,
};

#[tokio::test]
async fn a_layer_with_other_bytes_ends_with_an_error() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"one layer"]);
    let layer = &image.layers[0];
    let broker = Broker::for_registries(&[&registry]).await;
    assert_eq!(broker.pull(&image.reference, layer).await.unwrap(), b"one layer");
    for (fault, want) in [
        (Fault::Replace(b"two layer".to_vec()), "image_digest_wrong: the layer "),
        (Fault::Replace(b"one".to_vec()), "has 3 bytes instead of 9"),
        (Fault::ReplaceUnannounced(b"two layer".to_vec()), "image_digest_wrong: the layer "),
        (Fault::ReplaceUnannounced(b"one lay".to_vec()), "has 7 bytes instead of 9"),
        (Fault::ReplaceUnannounced(b"one layer and more".to_vec()), "has more than its 9 bytes"),
        (Fault::ReplaceUnannounced(vec![]), "has 0 bytes instead of 9"),
        (Fault::Truncate(4), "registry_failed: "),
    ] {
        registry.fail(layer, fault.clone());
        let refused = broker.pull(&image.reference, layer).await.unwrap_err();
        assert!(refused.contains(want), "{fault:?}: {refused}");
    }
}

#[tokio::test]
async fn a_manifest_or_a_configuration_with_other_bytes_is_refused() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    let other = registry.push_image("other", &[b"other"]);
    let broker = Broker::for_registries(&[&registry]).await;
    broker.resolve(&image.reference, "").await.unwrap();
    let bytes = content::configuration(&[b"other"]);
    registry.fail(&image.configuration, Fault::Replace(bytes));
    let refused = broker.refusal(&image.reference, "").await;
    assert!(refused.starts_with("image_digest_wrong: "), "{refused}");
    registry.heal(&image.configuration);
    let manifest =
        content::manifest(&content::configuration(&[b"other"]), [(other.layers[0].as_str(), 5)].into_iter());
    registry.fail(&image.digest, Fault::Replace(manifest.bytes.clone()));
    let refused = broker.refusal(&image.reference, "").await;
    assert!(refused.starts_with("image_digest_wrong: "), "{refused}");
    // A tag names whatever the registry sends.
    registry.fail("latest", Fault::Replace(manifest.bytes));
    assert_eq!(broker.resolve(&image.name, "").await.unwrap().digest, other.digest);
}

/// The manifest of an image with one layer, as JSON.
fn manifest(configuration: &[u8]) -> Value {
    json!({
        "schemaVersion": 2,
        "config": {"mediaType": CONFIGURATION, "digest": content::digest(configuration), "size": configuration.len()},
        "layers": [{"mediaType": LAYER, "digest": content::digest(b"layer"), "size": 5}],
    })
}

#[tokio::test]
async fn hostile_manifests_and_configurations_are_refused() {
    let registry = Registry::start().await;
    let configuration = content::configuration(&[b"layer"]);
    registry.push_blob(&configuration);
    let broker = Broker::for_registries(&[&registry]).await;
    let name = format!("{}/app:1", registry.host);
    let push = |bytes: Vec<u8>| {
        registry.push_manifest("app", "1", Document { media_type: MANIFEST.to_owned(), bytes })
    };
    push(manifest(&configuration).to_string().into_bytes());
    broker.resolve(&name, "").await.unwrap();
    let change = |pointer: &str, value: Value| {
        let mut document = manifest(&configuration);
        *document.pointer_mut(pointer).unwrap() = value;
        document.to_string().into_bytes()
    };
    let layer = json!({"mediaType": LAYER, "digest": content::digest(b"layer"), "size": 5});
    for (bytes, want) in [
        (vec![b' '; 4 * 1024 * 1024 + 1], "image_too_large: "),
        (b"<html>".to_vec(), "image_unsupported: "),
        (vec![], "image_unsupported: "),
        ("[".repeat(1_000_000).into_bytes(), "image_unsupported: "),
        (change("/layers", json!("x")), "image_unsupported: "),
        (change("/layers/0/size", json!(-5)), "image_unsupported: "),
        (change("/layers/0/size", json!(u64::MAX)), "image_too_large: "),
        (change("/layers/0/digest", json!("../../../etc/passwd")), "image_unsupported: "),
        (change("/layers", json!(vec![layer.clone(); 129])), "image_too_large: "),
        // One layer less than the configuration has.
        (change("/layers", json!([])), "image_unsupported: "),
        (change("/config/digest", json!(content::digest(b"nothing"))), "image_unknown: "),
    ] {
        push(bytes);
        let refused = broker.refusal(&name, "").await;
        assert!(refused.starts_with(want) && refused.len() < 600, "{want}: {refused}");
    }
    registry.fail("1", Fault::ReplaceUnannounced(vec![b' '; 4 * 1024 * 1024 + 1]));
    let refused = broker.refusal(&name, "").await;
    assert!(refused.starts_with("image_too_large: "), "{refused}");
    registry.heal("1");
    let many: Vec<&[u8]> = vec![b"layer"; 128];
    let image = registry.push_image("many", &many);
    assert_eq!(broker.resolve(&image.reference, "").await.unwrap().layers.len(), 128);
    let large = [&configuration[..], &vec![b' '; 8 * 1024 * 1024]].concat();
    registry.push_blob(&large);
    push(manifest(&large).to_string().into_bytes());
    let refused = broker.refusal(&name, "").await;
    assert!(refused.starts_with("image_too_large: "), "{refused}");
}

#[tokio::test]
async fn a_private_registry_is_reached_only_if_the_operator_says_so() {
    let registry = Registry::start_with_tls().await;
    registry.push_image("app", &[b"layer"]);
    let (directory, port) = (tempfile::tempdir().unwrap(), registry.host.rsplit_once(':').unwrap().1);
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, registry.certificate.as_ref().unwrap()).unwrap();
    let trusted = ["--registry-ca", ca.to_str().unwrap()];
    let opened = ["--networks", "127.0.0.0/8,::1/128"];
    let names = ["127.0.0.1", "localhost"].map(|host| format!("{host}:{port}/app"));
    let closed = Broker::start(&trusted).await;
    for name in &names {
        let refused = closed.refusal(name, "").await;
        assert!(
            refused.starts_with("registry_unreachable: ") && refused.contains("FLOTILLA_BROKER_NETWORKS"),
            "{refused}"
        );
    }
    let trusting = Broker::start(&opened).await;
    let refused = trusting.refusal(&names[0], "").await;
    assert!(refused.starts_with("registry_unreachable: ") && refused.contains("certificate"), "{refused}");
    assert_eq!(registry.requests(), []);
    let open = Broker::start(&[&opened[..], &trusted].concat()).await;
    for name in &names {
        open.resolve(name, "").await.unwrap();
    }
}

#[tokio::test]
async fn a_registry_without_tls_is_reached_only_if_the_operator_names_its_host_and_port() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    let port = registry.host.rsplit_once(':').unwrap().1;
    let closed = Broker::start(&["--networks", "127.0.0.0/8,::1/128"]).await;
    let refused = closed.refusal(&image.name, "").await;
    assert!(refused.starts_with("registry_unreachable: "), "{refused}");
    let open = Broker::for_registries(&[&registry]).await;
    let refused = open.refusal(&format!("localhost:{port}/app"), "").await;
    assert!(refused.contains("FLOTILLA_BROKER_NETWORKS"), "{refused}");
    assert_eq!(registry.requests(), []);
    open.resolve(&image.name, "").await.unwrap();
}

#[tokio::test]
async fn a_redirect_leads_to_no_host_that_a_reference_could_not_name() {
    let (registry, inside) = (Registry::start().await, Registry::start().await);
    let image = registry.push_image("app", &[b"layer"]);
    let layer = &image.layers[0];
    inside.push_blob(b"layer");
    let closed = Broker::for_registries(&[&registry]).await;
    let round = format!("http://{}/v2/app/blobs/{layer}", registry.host);
    for (url, want) in [
        (format!("http://{}/{layer}", inside.host), "FLOTILLA_BROKER_REGISTRY_PLAINTEXT"),
        (format!("https://{}/{layer}", inside.host), "FLOTILLA_BROKER_NETWORKS"),
        (format!("https://user:x@ghcr.io/{layer}"), "user name"),
        ("file:///etc/passwd".to_owned(), "registry_unreachable: "),
        ("http://".to_owned(), "redirects to nowhere"),
        (round, "redirects more than 5 times"),
    ] {
        registry.fail(layer, Fault::Redirect(url.clone()));
        let refused = closed.pull(&image.reference, layer).await.unwrap_err();
        assert!(refused.contains(want), "{url}: {refused}");
    }
    assert_eq!(inside.requests(), []);
    let open = Broker::for_registries(&[&registry, &inside]).await;
    registry.fail(layer, Fault::Redirect(format!("http://{}/{layer}", inside.host)));
    assert_eq!(open.pull(&image.reference, layer).await.unwrap(), b"layer");
    // Only blobs may be elsewhere.
    inside.push_image("app", &[b"layer"]);
    registry.fail("latest", Fault::Redirect(format!("http://{}/v2/app/manifests/latest", inside.host)));
    let refused = open.refusal(&image.name, "").await;
    assert!(refused.contains("it redirects the manifest"), "{refused}");
    assert_eq!(inside.requests().len(), 1);
    registry.heal("latest");
    open.resolve(&image.name, "").await.unwrap();
}
