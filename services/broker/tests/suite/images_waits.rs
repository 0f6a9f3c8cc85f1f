//! Registries that stop, callers that do not read, and tenants that pull at the same time.

use crate::harness::{Broker, read, tenants};
use broker::{
    images::{
        error::ImageError,
        patience::Patience,
        puller::{PullError, Puller},
        registry::hosts::Hosts,
        request::ImageRequest,
    },
    secrets::{deployment_key::DeploymentKey, key_file::KeyFile, keyring::Keyring, vault::Vault},
};
use chassis::Service;
use futures::{StreamExt as _, future::join_all};
use std::{sync::Arc, time::Duration};
use store::broker::BrokerStore;
use testkit::registry::{Registry, content::PushedImage, rules::Fault};

/// Pulls of one tenant at once.
const TENANT_PULLS: usize = 12;
const SHORT: Duration = Duration::from_millis(50);
/// Long enough for an answer of this machine.
const LIMIT: Duration = Duration::from_millis(700);

/// A puller with waits of a test, and a request for an image.
async fn puller(
    registry: &Registry,
    image: &PushedImage,
    patience: Patience,
) -> (Puller, ImageRequest, Service) {
    let (database, directory) = (testkit::database().await, tempfile::tempdir().unwrap());
    let ([tenant, _], _) = tenants(&database).await;
    let key = KeyFile::open_or_create(&directory.path().join("key")).unwrap();
    let store = BrokerStore::connect(&database.broker_url, 1).unwrap();
    let vault = Arc::new(Vault::new(store, Keyring::new(DeploymentKey::File(key), vec![])));
    let hosts = Hosts { plaintext: vec![registry.host.parse().unwrap()], ..Hosts::default() };
    let (service, _) = Service::in_process();
    let puller = Puller::new(vault, hosts, patience, &service).unwrap();
    let reference = image.reference.parse().unwrap();
    (puller, ImageRequest { tenant, project: None, reference, credential: None }, service)
}

#[tokio::test]
async fn a_registry_that_stops_in_the_middle_ends_the_pull() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    registry.fail(&image.layers[0], Fault::Hold(3));
    let patience = Patience { silence: LIMIT, ..Patience::default() };
    let (puller, request, _service) = puller(&registry, &image, patience).await;
    let layer = image.layers[0].parse().unwrap();
    let mut stream = puller.pull(&request, &layer).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), &b"lay"[..]);
    let error = testkit::within("the pull ends", stream.next()).await.unwrap().unwrap_err();
    assert_eq!(error.code().as_str(), "registry_failed");
    assert!(error.to_string().contains("stopped in the middle"), "{error}");
    assert!(stream.next().await.is_none());
    registry.release();
    let bytes: Vec<_> = puller.pull(&request, &layer).await.unwrap().map(Result::unwrap).collect().await;
    assert_eq!(bytes.concat(), b"layer");
}

#[tokio::test]
async fn a_manifest_or_a_layer_that_takes_too_long_is_given_up() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    let patience = Patience { document: LIMIT, layer: LIMIT, ..Patience::default() };
    let (puller, request, _service) = puller(&registry, &image, patience).await;
    let layer = image.layers[0].parse().unwrap();
    puller.resolve(&request).await.unwrap();
    for name in [&image.digest, &image.layers[0]] {
        registry.fail(name, Fault::Hold(3));
    }
    let error = testkit::within("the call ends", Box::pin(puller.resolve(&request))).await.unwrap_err();
    assert!(error.to_string().contains("stopped in the middle"), "{error}");
    let stream = puller.pull(&request, &layer).await.unwrap();
    let pieces: Vec<_> = testkit::within("the pull ends", stream.collect()).await;
    let error = pieces.last().unwrap().as_ref().unwrap_err();
    assert_eq!(error.code().as_str(), "pull_interrupted");
    assert!(error.to_string().contains("did not arrive in time"), "{error}");
}

#[tokio::test]
async fn a_caller_that_does_not_read_gives_its_place_back_and_gets_no_whole_layer() {
    let registry = Registry::start().await;
    let content = vec![1; 64 * rpc::CHUNK_BYTES];
    let image = registry.push_image("app", &[&content]);
    let layer = image.layers[0].parse().unwrap();
    let patience = Patience { caller: SHORT, ..Patience::default() };
    let (puller, request, service) = puller(&registry, &image, patience).await;
    let stream = puller.pull(&request, &layer).await.unwrap();
    assert!(service.tasks.join_all(Duration::from_secs(20)).await.is_empty(), "the pull ends");
    let pieces: Vec<_> = stream.collect().await;
    let (last, before) = pieces.split_last().unwrap();
    assert_eq!(last.as_ref().unwrap_err().code().as_str(), "pull_interrupted");
    assert!(before.len() < 64 && before.iter().all(Result::is_ok));
    let stream = puller.pull(&request, &layer).await.unwrap();
    let bytes: Vec<_> = stream.map(Result::unwrap).collect().await;
    assert!(bytes.concat() == content, "a caller that reads gets all of it");
}

#[tokio::test]
async fn a_tenant_with_all_its_places_hears_that_it_is_busy() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer", b"other"]);
    registry.fail(&image.layers[0], Fault::Hold(3));
    let patience = Patience { permit: SHORT, ..Patience::default() };
    let (puller, request, _service) = puller(&registry, &image, patience).await;
    let (held, other) = (image.layers[0].parse().unwrap(), image.layers[1].parse().unwrap());
    let pulls = join_all((0..TENANT_PULLS).map(|_| puller.pull(&request, &held))).await;
    let error = puller.pull(&request, &other).await.unwrap_err();
    assert!(
        matches!(&error, PullError::Image(ImageError::Busy(text)) if text.contains("this tenant")),
        "{error}"
    );
    drop(pulls);
    let freed = || async { puller.pull(&request, &other).await.is_ok() };
    testkit::eventually("a caller that left gave its place back", freed).await;
}

#[tokio::test]
async fn one_tenant_leaves_places_to_another() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer", b"other"]);
    let [held, other] = [&image.layers[0], &image.layers[1]];
    registry.fail(held, Fault::Hold(3));
    let broker = Broker::for_registries(&[&registry]).await;
    let [greedy, modest] = broker.tenants;
    let pulls = join_all((0..TENANT_PULLS).map(|_| broker.open(greedy, &image.reference, held))).await;
    let pulls: Vec<_> = pulls.into_iter().map(Result::unwrap).collect();
    let waiting = tokio::spawn(broker.open(greedy, &image.reference, other));
    let stream = broker.open(modest, &image.reference, other);
    let stream = testkit::within("the other tenant pulls", stream).await.unwrap();
    assert_eq!(read(stream).await.unwrap(), b"other");
    let asked =
        || registry.requests().iter().filter(|request| request.path.ends_with(other.as_str())).count();
    assert_eq!(asked(), 1, "the further pull of the first tenant waits");
    registry.release();
    for stream in pulls {
        assert_eq!(read(stream).await.unwrap(), b"layer");
    }
    let stream = testkit::within("its turn comes", waiting).await.unwrap().unwrap();
    assert_eq!(read(stream).await.unwrap(), b"other");
}

#[tokio::test]
async fn a_broker_that_stops_says_that_the_layer_is_not_whole() {
    let registry = Registry::start().await;
    let image = registry.push_image("app", &[b"layer"]);
    registry.fail(&image.layers[0], Fault::Hold(3));
    let broker = Broker::for_registries(&[&registry]).await;
    let mut stream = broker.open(broker.tenants[0], &image.reference, &image.layers[0]).await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap().data, b"lay");
    broker.service.shutdown.cancel();
    let refused = testkit::within("the pull ends", read(stream)).await.unwrap_err();
    assert!(refused.starts_with("pull_interrupted: "), "{refused}");
    assert_eq!(broker.audit()[0]["outcome"], "pull_interrupted");
    broker.running.await.unwrap().unwrap();
}
