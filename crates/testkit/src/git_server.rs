//! A server of git on a loopback port: `git http-backend` behind TLS and a login, and Git LFS. It misbehaves on command.
// Continues in `git_server::answer`, which serves the requests.

mod answer;
mod lfs;
pub mod rules;
mod state;

use crate::{git::Repository, ground::http_server, tls::TlsListener};
use axum::Router;
use domain::text;
use rules::{GitFault, GitRequest, LfsStore};
use sha2::{Digest as _, Sha256};
use state::{Hold, Shared, State};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
};

/// A server that runs as long as this value lives.
#[derive(Debug)]
pub struct GitServer {
    pub address: SocketAddr,
    /// Its certificate, as PEM.
    pub certificate: String,
    repositories: TempDir,
    state: Arc<Mutex<State>>,
    requests: watch::Sender<Vec<GitRequest>>,
    held: watch::Sender<Hold>,
    _stop: oneshot::Sender<()>,
}

impl GitServer {
    /// Starts a server without repositories that everybody may read, with a certificate for these names.
    pub async fn start(names: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (listener, certificate) = TlsListener::new(listener, names);
        let repositories = tempfile::tempdir().expect("a temporary directory");
        let shared = Shared {
            root: repositories.path().to_owned(),
            state: Arc::default(),
            requests: watch::Sender::new(vec![]),
            held: watch::Sender::new(Hold::On),
        };
        let (stop, stopped) = oneshot::channel();
        let git_server = Self {
            address,
            certificate,
            repositories,
            state: Arc::clone(&shared.state),
            requests: shared.requests.clone(),
            held: shared.held.clone(),
            _stop: stop,
        };
        let router = Router::new().fallback(answer::answer).with_state(shared);
        http_server::spawn(listener, router, stopped);
        git_server
    }

    /// Serves the commits of a repository at `path`: `acme/app.git`. Call it again after a commit.
    pub fn push(&self, path: &str, repository: &Repository) {
        repository.publish(&self.directory(path));
    }

    /// The directory of a repository.
    pub fn directory(&self, path: &str) -> PathBuf {
        self.repositories.path().join(path)
    }

    /// Requires this `user:password` from now on.
    pub fn require(&self, login: &str) {
        self.state().login = Some(login.to_owned());
    }

    /// Lets everybody read from now on.
    pub fn require_nothing(&self) {
        self.state().login = None;
    }

    /// Keeps an object of Git LFS for the repository at `path`, and returns its pointer.
    pub fn store_lfs(&self, path: &str, content: &[u8]) -> String {
        let oid = text::hex(&Sha256::digest(content));
        self.store_lfs_as(path, &oid, content);
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {}\n", content.len())
    }

    /// Keeps a content under the name of an object, which may be that of another content.
    pub fn store_lfs_as(&self, path: &str, oid: &str, content: &[u8]) {
        let mut state = self.state();
        state.lfs.entry(path.to_owned()).or_default().insert(oid.to_owned(), content.to_owned());
    }

    /// The content of an object of Git LFS.
    pub fn find_lfs(&self, path: &str, oid: &str) -> Option<Vec<u8>> {
        self.state().lfs.get(path)?.get(oid).cloned()
    }

    /// Forgets an object of Git LFS.
    pub fn forget_lfs(&self, path: &str, oid: &str) {
        if let Some(objects) = self.state().lfs.get_mut(path) {
            objects.remove(oid);
        }
    }

    /// Lets the objects of Git LFS be read in a store of their own from now on.
    pub fn lead_lfs_to(&self, store: LfsStore) {
        self.state().lfs_store = Some(store);
    }

    /// Lets the answers at paths with this end fail: `acme/app.git/info/refs`.
    pub fn fail(&self, path: &str, fault: GitFault) {
        self.state().faults.insert(path.to_owned(), fault);
    }

    /// Ends the fault at a path.
    pub fn heal(&self, path: &str) {
        self.state().faults.remove(path);
    }

    /// Sends the rest of all held answers, also of later ones.
    pub fn release(&self) {
        self.held.send_replace(Hold::Off);
    }

    pub fn requests(&self) -> Vec<GitRequest> {
        self.requests.borrow().clone()
    }

    /// Waits until a request whose target ends with `target` has arrived.
    pub async fn wait_for_request(&self, target: &str) {
        let mut requests = self.requests.subscribe();
        let has_arrived =
            |requests: &Vec<GitRequest>| requests.iter().any(|request| request.target.ends_with(target));
        crate::within(target, requests.wait_for(has_arrived)).await.expect("a server");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
