//! Sessions whose settings name an image: from a registry through broker and worker to the sandbox machine.

mod packages;
mod setups;
mod warm_ups;

use e2e::{
    Options, Stack, layers,
    settings::Outside,
    turn::{Watch, output},
};
use rpc::v1;
use serde_json::json;
use std::sync::LazyLock;
use testkit::registry::{
    Registry, content,
    rules::{Fault, Login},
};

/// A layer with the programs that the image has, like any image with a shell.
static BASE: LazyLock<Vec<u8>> = LazyLock::new(|| layers::programs(&["/bin/bash", "/bin/cat"]).unwrap());

/// A layer with one file.
fn layer(name: &str, content: &str) -> Vec<u8> {
    layers::file(name, content).unwrap()
}

async fn stack(registry: &Registry) -> Stack {
    let outside = Outside { registries: vec![registry.host.clone()], ..Outside::default() };
    Stack::with(Options { broker: true, outside, ..Options::default() }).await
}

/// Whether this machine can join layers. Where it cannot, the test is skipped.
fn is_supported(output: &Result<String, String>) -> bool {
    let is_unsupported = output.as_ref().is_err_and(|error| error.contains("images_unsupported"));
    if is_unsupported {
        e2e::left_out::skip("this machine cannot join the layers of images");
    }
    !is_unsupported
}

#[tokio::test]
async fn a_session_runs_in_the_image_of_its_settings() {
    let registry = Registry::start().await;
    let stack = stack(&registry).await;
    let api = &stack.api;
    registry.push_image("acme/dev", &[&BASE, &layer("version", "one")]);
    api.set_environment("", &json!({"image": format!("{}/acme/dev:latest", registry.host)})).await;
    let session = api.session(None).await;
    let look = "cat /srv/version; echo; echo $PATH $HOME /usr/*";
    let first = output(api, &session, look).await;
    if !is_supported(&first) {
        return;
    }
    let path = content::PATH.trim_start_matches("PATH=");
    assert_eq!(first.unwrap(), format!("one\n{path} /home/agent /usr/*\n"));
    // The tag moves on: the session keeps its image, and a new one has the new one.
    registry.push_image("acme/dev", &[&BASE, &layer("version", "two")]);
    assert!(output(api, &session, look).await.unwrap().starts_with("one"));
    let request = v1::ForkSessionRequest { session_id: session.clone(), ..Default::default() };
    let fork = api.sessions().fork_session(request).await.unwrap().into_inner().session.unwrap().id;
    assert!(output(api, &fork, look).await.unwrap().starts_with("one"), "a fork goes on in the same image");
    let asked = registry.requests().len();
    let second = api.session(None).await;
    assert!(output(api, &second, look).await.unwrap().starts_with("two"));
    let blobs = registry.requests().split_off(asked);
    let blobs = blobs.iter().filter(|request| request.path.contains("/blobs/")).count();
    assert_eq!(blobs, 2, "the configuration and the layer that is new");
}

#[tokio::test]
async fn a_tenant_reaches_a_layer_of_the_machine_only_with_its_bytes() {
    let registry = Registry::start().await;
    let stack = stack(&registry).await;
    let (api, other) = (&stack.api, stack.other_tenant().await);
    let secret = layer("secret", "of one tenant");
    let owned = registry.push_image("one/private", &[&BASE, &secret]);
    api.set_environment("", &json!({"image": owned.reference})).await;
    let session = api.session(None).await;
    let first = output(api, &session, "cat /srv/secret").await;
    if !is_supported(&first) {
        return;
    }
    assert_eq!(first.unwrap(), "of one tenant");
    // Another tenant knows the digests and not the bytes: its registry has an image that names them.
    let hidden = owned.layers.last().unwrap();
    registry.fail(hidden, Fault::Status { code: 404, times: usize::MAX, retry_after: None });
    other.set_environment("", &json!({"image": owned.reference})).await;
    let stolen = other.session(None).await;
    let refused = output(&other, &stolen, "cat /srv/secret").await.unwrap_err();
    assert!(refused.contains("image_unknown"), "{refused}");
    // With the bytes it is there at once.
    registry.heal(hidden);
    let fair = other.session(None).await;
    assert_eq!(output(&other, &fair, "cat /srv/secret").await.unwrap(), "of one tenant");
}

#[tokio::test]
async fn a_subscriber_reads_how_many_layers_of_an_image_are_there() {
    if e2e::is_left_out(&["nats"], "notices come through NATS only") {
        return;
    }
    let registry = Registry::start().await;
    let stack = stack(&registry).await;
    let api = &stack.api;
    let image = registry.push_image("acme/dev", &[&BASE]);
    registry.fail(&image.layers[0], Fault::Hold(3));
    api.set_environment("", &json!({"image": image.reference})).await;
    let session = api.session(None).await;
    let mut watch = Watch::start(api, &session).await;
    let look = output(api, &session, "echo open");
    tokio::pin!(look);
    let notice = tokio::select! {
        notice = watch.until_notice(|notice| notice["unit"] == "layers") => notice,
        early = &mut look => {
            assert!(!is_supported(&early), "its layer is held: {early:?}");
            return;
        }
    };
    assert!(notice["stage"] == "image" && notice["done"] == 0 && notice["total"] == 1, "{notice}");
    registry.release();
    let looked = look.await;
    if is_supported(&looked) {
        assert_eq!(looked.unwrap(), "open\n");
    }
}

#[tokio::test]
async fn an_image_that_cannot_be_had_fails_the_turn_with_its_reason() {
    let registry = Registry::start().await;
    let stack = stack(&registry).await;
    let api = &stack.api;
    let reference = format!("{}/acme/dev:latest", registry.host);
    api.set_environment("", &json!({"image": reference.as_str(), "image_credential": "LOGIN"})).await;
    let session = api.session(None).await;
    let refused = output(api, &session, "true").await.unwrap_err();
    assert!(refused.contains("secret_not_found"), "{refused}");
    api.set_secret("LOGIN", "ann:pass").await;
    let refused = output(api, &session, "true").await.unwrap_err();
    assert!(refused.contains("image_unknown") && refused.contains("acme/dev"), "{refused}");
    registry.push_image("acme/dev", &[&BASE]);
    registry.require(Login::Basic("ann:other".to_owned()));
    let refused = output(api, &session, "true").await.unwrap_err();
    assert!(refused.contains("image_unauthorized") && !refused.contains("pass"), "{refused}");
    registry.require(Login::Basic("ann:pass".to_owned()));
    let reached = output(api, &session, "echo $BASH_VERSION").await;
    if is_supported(&reached) {
        assert!(reached.unwrap().starts_with('5'));
    }
}
