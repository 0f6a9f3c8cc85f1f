//! A registry of images in memory, on a loopback port. It speaks the pull half of the distribution protocol, with every kind of
//! login, and misbehaves on command.
// Continues in `registry::answer`, which serves the requests.

mod answer;
pub mod content;
pub mod rules;
mod state;

use crate::{ground::http_server, tls::TlsListener};
use axum::Router;
use content::PushedImage;
use rules::{Fault, Login, RegistryRequest};
use state::{Hold, Shared, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{oneshot, watch};

/// A name in the certificates of registries, which no server of names knows.
pub const REGISTRY_NAME: &str = "registry.example.com";

/// A registry that runs as long as this value lives.
#[derive(Debug)]
pub struct Registry {
    /// Its host and port, as they begin references.
    pub host: String,
    /// The certificate for 127.0.0.1, localhost and [`REGISTRY_NAME`] that its TLS has, as PEM. `None`: it has no TLS.
    pub certificate: Option<String>,
    state: Arc<Mutex<State>>,
    requests: watch::Sender<Vec<RegistryRequest>>,
    held: watch::Sender<Hold>,
    _stop: oneshot::Sender<()>,
}

impl Registry {
    /// Starts an empty registry that everybody may use, without TLS.
    pub async fn start() -> Self {
        let (listener, host) = http_server::listen().await;
        let (registry, router, stopped) = Self::new(host, None);
        http_server::spawn(listener, router, stopped);
        registry
    }

    /// Starts such a registry with TLS.
    pub async fn start_with_tls() -> Self {
        let (listener, host) = http_server::listen().await;
        let (listener, certificate) = TlsListener::new(listener, &["127.0.0.1", "localhost", REGISTRY_NAME]);
        let (registry, router, stopped) = Self::new(host, Some(certificate));
        http_server::spawn(listener, router, stopped);
        registry
    }

    fn new(host: String, certificate: Option<String>) -> (Self, Router, oneshot::Receiver<()>) {
        let scheme = if certificate.is_some() { "https" } else { "http" };
        let shared = Shared {
            origin: format!("{scheme}://{host}"),
            state: Arc::default(),
            requests: watch::Sender::new(vec![]),
            held: watch::Sender::new(Hold::On),
        };
        let (stop, stopped) = oneshot::channel();
        let registry = Self {
            host,
            certificate,
            state: Arc::clone(&shared.state),
            requests: shared.requests.clone(),
            held: shared.held.clone(),
            _stop: stop,
        };
        (registry, Router::new().fallback(answer::answer).with_state(shared), stopped)
    }

    /// Requires a login from now on.
    pub fn require(&self, login: Login) {
        self.state().login = login;
    }

    /// Lets the answers at a name fail: a tag, a digest, or `token`.
    pub fn fail(&self, name: &str, fault: Fault) {
        self.state().faults.insert(name.to_owned(), fault);
    }

    /// Ends the fault at a name.
    pub fn heal(&self, name: &str) {
        self.state().faults.remove(name);
    }

    /// Sends the rest of all held answers, also of later ones.
    pub fn release(&self) {
        self.held.send_replace(Hold::Off);
    }

    /// Stores a blob, and returns its digest.
    pub fn push_blob(&self, bytes: &[u8]) -> String {
        let digest = content::digest(bytes);
        self.state().blobs.insert(digest.clone(), bytes.to_vec());
        digest
    }

    /// Stores a manifest or an index by its tag and digest, and returns the digest.
    pub fn push_manifest(&self, repository: &str, tag: &str, document: content::Document) -> String {
        let digest = content::digest(&document.bytes);
        let mut state = self.state();
        for name in [tag, &digest] {
            state.manifests.insert(format!("{repository}/{name}"), document.clone());
        }
        digest
    }

    /// Stores an image for this machine with these layers, under the tag `latest`.
    pub fn push_image(&self, repository: &str, layers: &[&[u8]]) -> PushedImage {
        let configuration = content::configuration(layers);
        self.push_blob(&configuration);
        let layers: Vec<String> = layers.iter().map(|layer| self.push_blob(layer)).collect();
        let state = self.state();
        let sizes: Vec<usize> = layers.iter().map(|digest| state.blobs[digest].len()).collect();
        drop(state);
        let document = content::manifest(&configuration, layers.iter().map(String::as_str).zip(sizes));
        let digest = self.push_manifest(repository, "latest", document);
        let name = format!("{}/{repository}", self.host);
        let configuration = content::digest(&configuration);
        PushedImage { reference: format!("{name}@{digest}"), name, digest, configuration, layers }
    }

    pub fn requests(&self) -> Vec<RegistryRequest> {
        self.requests.borrow().clone()
    }

    /// Waits until `count` requests whose path ends with `name` have arrived.
    pub async fn wait_for_requests(&self, name: &str, count: usize) {
        let mut requests = self.requests.subscribe();
        let have_arrived = |requests: &Vec<RegistryRequest>| {
            requests.iter().filter(|request| request.path.ends_with(name)).count() >= count
        };
        let what = format!("{count} requests for {name}");
        crate::within(&what, requests.wait_for(have_arrived)).await.expect("a registry");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves until the registry is dropped.
#[cfg(test)]
mod tests;
