//! Credentials: where they come from, who sees them, and who does not.

use crate::harness::Broker;
use rpc::v1;
use testkit::registry::{
    Registry,
    rules::{Fault, Login},
};

const VALUE: &str = "ann:hunter2";

/// The values of `Authorization` that a registry got.
fn shown(registry: &Registry) -> Vec<String> {
    registry.requests().into_iter().filter_map(|request| request.authorization).collect()
}

#[tokio::test]
async fn every_kind_of_login_is_answered_with_the_credential_for_it() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    let broker = Broker::for_registries(&[&registry]).await;
    registry.require(Login::AnyToken);
    broker.resolve(&image.name, "").await.unwrap();
    for (name, login, value) in [
        ("BASIC", Login::Basic(VALUE.to_owned()), "ann:hunter2\n"),
        ("PASSWORD", Login::Password(VALUE.to_owned()), VALUE),
        ("IDENTITY", Login::Identity("id-token".to_owned()), "<token>:id-token"),
        ("BEARER", Login::Bearer("a.bearer.token".to_owned()), "a.bearer.token"),
    ] {
        registry.require(login.clone());
        broker.put_secret(None, name, value).await;
        broker.put_secret(None, "WRONG", &value.replace("hunter2", "x").replace("token", "x")).await;
        broker.resolve(&image.name, name).await.unwrap();
        let refused = broker.refusal(&image.name, "").await;
        assert!(
            refused.starts_with("image_unauthorized: ") && refused.contains("it needs a credential"),
            "{refused}"
        );
        let refused = broker.refusal(&image.name, "WRONG").await;
        assert!(
            refused.starts_with("image_unauthorized: ") && refused.contains("refuses the credential WRONG"),
            "{login:?}: {refused}"
        );
    }
}

#[tokio::test]
async fn a_secret_of_the_project_comes_before_that_of_the_tenant_and_no_other_tenant_has_it() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    registry.require(Login::Basic(VALUE.to_owned()));
    let broker = Broker::for_registries(&[&registry]).await;
    let refused = broker.refusal(&image.name, "REGISTRY").await;
    assert!(refused.starts_with("secret_not_found: ") && refused.contains("REGISTRY"), "{refused}");
    broker.put_secret(None, "REGISTRY", "ann:wrong").await;
    assert!(broker.refusal(&image.name, "REGISTRY").await.starts_with("image_unauthorized: "));
    broker.put_secret(Some(&broker.project), "REGISTRY", VALUE).await;
    broker.resolve(&image.name, "REGISTRY").await.unwrap();
    let request = v1::ResolveImageRequest {
        tenant_id: broker.tenants[1].to_string(),
        project_id: broker.project.to_string(),
        reference: image.name.clone(),
        credential: "REGISTRY".to_owned(),
    };
    let refused = broker.client.clone().resolve_image(request).await.unwrap_err();
    assert_eq!(rpc::status::code_of(&refused).unwrap(), "secret_not_found");
    let shown_before = shown(&registry).len();
    broker.put_secret_for(Some(&broker.project), "REGISTRY", VALUE, &["https://ghcr.io/acme/"]).await;
    let refused = broker.refusal(&image.name, "REGISTRY").await;
    assert!(
        refused.starts_with("image_unauthorized: ") && refused.contains("only for https://ghcr.io/acme/"),
        "{refused}"
    );
    assert_eq!(shown(&registry).len(), shown_before, "this registry did not get it");
    broker.put_secret(None, "NONE", "two words").await;
    let refused = broker.refusal(&image.name, "NONE").await;
    assert!(refused.contains("NONE is not a credential") && !refused.contains("two words"), "{refused}");
}

#[tokio::test]
async fn the_value_of_a_credential_is_in_no_log_and_no_error() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    let broker = Broker::for_registries(&[&registry]).await;
    broker.put_secret(None, "RIGHT", VALUE).await;
    broker.put_secret(None, "WRONG", "ann:swordfish").await;
    let mut errors = String::new();
    for login in [Login::Basic(VALUE.to_owned()), Login::Password(VALUE.to_owned())] {
        registry.require(login);
        broker.resolve(&image.name, "RIGHT").await.unwrap();
        errors += &broker.refusal(&image.name, "WRONG").await;
        registry.fail("token", Fault::Status { code: 503, times: 9, retry_after: Some(99) });
        errors += &broker.resolve(&image.name, "WRONG").await.unwrap_err().to_string();
        registry.heal("token");
    }
    let text = broker.log() + &errors;
    assert!(text.contains("image_unauthorized") && text.contains("a secret was used"), "the log is complete");
    let encoded = ["YW5uOmh1bnRlcjI", "YW5uOnN3b3JkZmlzaA"];
    for value in ["hunter2", "swordfish", encoded[0], encoded[1], "token-of-a-test"] {
        assert!(!text.contains(value), "{value}");
        // The registry or its token service got it, so the search is for the right text.
        let was_sent = shown(&registry).iter().any(|shown| shown.contains(value));
        assert!(was_sent || ["hunter2", "swordfish"].contains(&value), "{value}");
    }
}

#[tokio::test]
async fn a_redirected_blob_is_asked_for_without_the_credential() {
    let (registry, store) = (Registry::start().await, Registry::start().await);
    let image = registry.push_image("app", &[b"layer"]);
    store.push_blob(b"layer");
    registry.require(Login::Basic(VALUE.to_owned()));
    let layer = &image.layers[0];
    registry.fail(layer, Fault::Redirect(format!("http://{}/blob-store/{layer}?signature=1", store.host)));
    let broker = Broker::for_registries(&[&registry, &store]).await;
    broker.put_secret(None, "REGISTRY", VALUE).await;
    let request = v1::PullLayerRequest {
        tenant_id: broker.tenants[0].to_string(),
        project_id: String::new(),
        reference: image.reference.clone(),
        credential: "REGISTRY".to_owned(),
        blob_digest: layer.clone(),
    };
    let stream = broker.client.clone().pull_layer(request).await.unwrap().into_inner();
    assert_eq!(crate::harness::read(stream).await.unwrap(), b"layer");
    assert_eq!(shown(&registry).len(), 2, "the registry itself wants it for the manifest and the blob");
    assert_eq!((store.requests().len(), shown(&store)), (1, vec![]));
}
