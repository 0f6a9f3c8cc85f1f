//! Warm-ups: the layers of an image are on the machine before the first prompt.

use super::{BASE, is_supported, layer};
use domain::ids::TenantId;
use e2e::{
    Options, Stack,
    settings::Outside,
    turn::{Watch, output},
};
use serde_json::json;
use store::Store;
use testkit::registry::Registry;

#[tokio::test]
async fn layers_are_there_when_a_person_who_follows_a_session_prompts_it() {
    if e2e::is_left_out(&["nats"], "gateways hint over NATS that a session may be prompted") {
        return;
    }
    let registry = Registry::start().await;
    let outside = Outside { registries: vec![registry.host.clone()], ..Outside::default() };
    let worker = &["--warm-ups", "4"];
    let stack = Stack::with(Options { broker: true, outside, worker, ..Options::default() }).await;
    let other = stack.other_tenant().await;
    let base = registry.push_image("umbrella/base", &[&BASE]);
    other.set_environment("", &json!({"image": base.reference})).await;
    if !is_supported(&output(&other, &other.session(None).await, "true").await) {
        return;
    }

    // The session needs nothing when it is created.
    let (api, session) = (&stack.api, stack.session().await);
    let image = registry.push_image("acme/dev", &[&BASE, &layer("version", "one")]);
    api.set_environment("", &json!({"image": image.reference})).await;
    let store = Store::connect(&stack.database.app_url, &stack.database.system_url, 1).unwrap();
    let tenant: TenantId = api.tenant_id.parse().unwrap();
    testkit::eventually("the tenant has the layers", async || {
        drop(Watch::start(api, &session).await);
        // The layers are not compressed, so the digests of their blobs are those of their archives.
        store.list_shown_layers(tenant, &image.layers).await.unwrap().len() == 2
    })
    .await;
    assert!(!stack.workspace(&session).exists());

    let asked = registry.requests().len();
    assert_eq!(output(api, &session, "cat /srv/version").await.unwrap(), "one");
    let later = registry.requests().split_off(asked);
    let is_layer = |path: &str| image.layers.iter().any(|layer| path.ends_with(layer.as_str()));
    assert!(!later.iter().any(|request| is_layer(&request.path)), "the session pulls no layer");
}
