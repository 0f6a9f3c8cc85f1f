//! A double of GitHub Enterprise for one host name, on a loopback port with TLS: the REST API below `/api/v3`, git over HTTP,
//! and an App with its webhooks. It misbehaves on command, and notes what it is asked.
// Continues in `forge::answer`, which serves the requests, and in `forge::emulator`, which has the state.

mod answer;
pub mod app;
mod emulator;
mod git;
pub mod person;
pub mod rules;
mod shared;

use crate::{git::Repository, ground::http_server, left_out, tls::TlsListener};
use app::App;
use axum::Router;
use emulator::{NodePackages, StateSettings};
use person::{Gate, Person};
use reqwest::{Certificate, Client};
use rules::{Delivery, ForgeFault, ForgeRequest, InstallationChange, Role, SecondaryLimit, Visibility};
use serde_json::{Value, json};
use shared::{Shared, State, Trap, Window};
use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    process::Child,
    sync::{oneshot, watch},
    time::Instant,
};

/// The file of the certificate, next to the repositories.
const CERTIFICATE: &str = "certificate.pem";

/// A double that runs as long as this value lives.
#[derive(Debug)]
pub struct Forge {
    pub address: SocketAddr,
    /// `https://github.test:41234`, the beginning of its pages and of URLs for git. The API is below `/api/v3`.
    pub url: String,
    /// Its certificate, as PEM.
    pub certificate: String,
    pub app: App,
    gate: Gate,
    shared: Shared,
    directory: TempDir,
    deliveries: watch::Sender<Vec<Delivery>>,
    _state: Child,
    _stop: oneshot::Sender<()>,
}

impl Forge {
    /// Starts a double of this name with the organization `acme`, in which its App is installed. `None`: npm has not installed
    /// what it needs, and the current test is recorded as skipped.
    pub async fn start(host: &str) -> Option<Self> {
        let Some(packages) = NodePackages::find() else {
            left_out::skip("emulate is not installed; `./dev test` installs it with npm");
            return None;
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (listener, certificate) = TlsListener::new(listener, &[host]);
        let url = format!("https://{host}:{}", address.port());
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (app, deliveries) = (App::new(), watch::Sender::new(vec![]));
        let root = directory.path();
        let settings = StateSettings { url: &url, root, app: &app.settings() };
        let (emulator, child) = packages.start(settings, deliveries.clone()).await;
        fs::write(root.join(CERTIFICATE), &certificate).expect("a certificate");
        let trusted = Certificate::from_pem(certificate.as_bytes()).expect("a certificate");
        let client = Client::builder().no_proxy().tls_certs_only([trusted]).resolve(host, address);
        let gate = Gate {
            client: client.build().expect("a client"),
            url: url.clone(),
            host: host.to_owned(),
            address,
            certificate: root.join(CERTIFICATE),
        };
        let shared = Shared {
            url: url.clone(),
            root: root.to_owned(),
            emulator,
            state: Arc::new(Mutex::new(State::default())),
            requests: watch::Sender::new(vec![]),
        };
        let (stop, stopped) = oneshot::channel();
        let router = Router::new().fallback(answer::answer).with_state(shared.clone());
        http_server::spawn(listener, router, stopped);
        let forge = Self {
            address,
            url,
            certificate,
            app,
            gate,
            shared,
            directory,
            deliveries,
            _state: child,
            _stop: stop,
        };
        forge.install("acme", forge.app.installation).await;
        Some(forge)
    }

    /// Makes another organization, and installs the App in it under this id.
    pub async fn install(&self, organization: &str, installation: u64) {
        let message = json!({"login": organization, "installation": installation});
        self.shared.emulator.tell("organizations", &message).await;
    }

    /// Changes the installation of an organization. GitHub announces that; a test does it with [`Forge::deliver`].
    pub async fn change_installation(&self, organization: &str, change: InstallationChange) {
        let mut message = match change {
            InstallationChange::Permissions(permissions) => {
                let permissions: serde_json::Map<String, Value> =
                    permissions.into_iter().map(|(name, level)| (name.to_owned(), level.into())).collect();
                json!({"permissions": permissions})
            }
            InstallationChange::Repositories(repositories) => json!({"repositories": repositories}),
            InstallationChange::Suspended => json!({"isSuspended": true}),
            InstallationChange::Unsuspended => json!({"isSuspended": false}),
        };
        message["account"] = organization.into();
        self.shared.emulator.tell("installations", &message).await;
    }

    /// Makes a person who may do nothing yet, or returns the one of this login.
    pub async fn user(&self, login: &str) -> Person {
        let token = format!("ghp_of_{login}");
        self.shared.emulator.tell("people", &json!({"login": login, "token": token})).await;
        self.bearer(login, &token)
    }

    /// Whoever has this token: of a person, of an installation, or a JSON web token of the App.
    pub fn bearer(&self, login: &str, token: &str) -> Person {
        Person { login: login.to_owned(), token: token.to_owned(), gate: self.gate.clone() }
    }

    /// Mints a token of the installation in `acme` as the App does, with a body like `{"repositories": ["app"]}`.
    pub async fn bot(&self, body: &Value) -> Person {
        let path = format!("/app/installations/{}/access_tokens", self.app.installation);
        let app = self.bearer("flotilla", &self.app.jwt());
        let (status, minted) = app.request(reqwest::Method::POST, &path, body).await;
        assert_eq!(status, 201, "{minted}");
        self.bearer("flotilla[bot]", minted["token"].as_str().expect("a token"))
    }

    /// Makes a repository like `acme/app` or `ann/notes` with these files on its branch `main`, and returns their commit.
    pub async fn repository(&self, name: &str, files: &[(&str, &str)], visibility: Visibility) -> String {
        let repository: Repository = crate::git::repository(files);
        let directory = self.directory(name);
        repository.publish(&directory);
        let message = json!({"name": name, "isPrivate": visibility == Visibility::Private});
        self.shared.emulator.tell("repositories", &message).await;
        repository.commit
    }

    /// The bare directory of a repository.
    pub fn directory(&self, repository: &str) -> PathBuf {
        self.directory.path().join(format!("{repository}.git"))
    }

    /// Gives a person a role in a repository, instead of the one that they have.
    pub async fn set_role(&self, person: &Person, repository: &str, role: Role) {
        let permission = match role {
            Role::Admin => Some("admin"),
            Role::Maintain => Some("maintain"),
            Role::Write => Some("push"),
            Role::Triage => Some("triage"),
            Role::Read => Some("pull"),
            Role::Stranger => None,
        };
        let message = json!({"repository": repository, "login": person.login, "permission": permission});
        self.shared.emulator.tell("collaborators", &message).await;
    }

    /// Sends the webhooks of the App to this URL from now on, one after another. Before that, all of them fail.
    pub async fn set_webhook(&self, url: &str) {
        self.shared.emulator.tell("settings", &json!({"hookUrl": url})).await;
    }

    /// Waits so long for the receiver of a webhook from now on, and not ten seconds as GitHub does.
    pub async fn set_delivery_timeout(&self, timeout: Duration) {
        let milliseconds = u64::try_from(timeout.as_millis()).expect("a timeout of a test");
        self.shared.emulator.tell("settings", &json!({"deliveryTimeout": milliseconds})).await;
    }

    /// Sends a webhook with this payload as it is.
    pub async fn deliver(&self, event: &str, payload: &Value) {
        self.shared.emulator.tell("events", &json!({"event": event, "payload": payload})).await;
    }

    /// Refuses each new token of an installation that often: with 401 first, then with 403.
    pub async fn delay_tokens(&self, uses: usize) {
        let refusals: Vec<u16> = (0..uses).map(|earlier| if earlier == 0 { 401 } else { 403 }).collect();
        self.shared.emulator.tell("settings", &json!({"newTokenRefusals": refusals})).await;
    }

    /// Ends all tokens of installations, as an hour does.
    pub async fn expire_tokens(&self) {
        self.shared.emulator.tell("expiry", &json!({})).await;
    }

    /// Lets the next requests of this method fail whose target begins with `prefix`: `/api/v3/repos/acme/app/issues`.
    pub fn fail(&self, times: usize, method: &str, prefix: &str, fault: ForgeFault) {
        let trap = Trap { method: method.to_owned(), prefix: prefix.to_owned(), times, fault };
        self.shared.state().traps.push(trap);
    }

    /// Limits how much is written from now on. The minute begins now.
    pub fn limit_writes(&self, limit: SecondaryLimit) {
        self.shared.state().window = Some(Window { limit, started_at: Instant::now(), writes: 0 });
    }

    /// Ends the limit.
    pub fn lift_limit(&self) {
        self.shared.state().window = None;
    }

    /// The requests so far, in the order in which they were answered.
    pub fn requests(&self) -> Vec<ForgeRequest> {
        self.shared.requests.borrow().clone()
    }

    /// Waits until the requests so far are what a test waits for.
    pub async fn wait_until(&self, what: &str, is_over: impl Fn(&[ForgeRequest]) -> bool) {
        let mut all = self.shared.requests.subscribe();
        drop(crate::within(what, all.wait_for(|all| is_over(all))).await.expect("a double"));
    }

    /// Waits for a request that is answered, or held back on command.
    pub async fn wait_for_request(
        &self,
        what: &str,
        is_meant: impl Fn(&ForgeRequest) -> bool,
    ) -> ForgeRequest {
        find(self.shared.requests.subscribe(), what, is_meant).await
    }

    /// The attempts to send a webhook so far, each after its end.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries.borrow().clone()
    }

    /// Waits for the end of an attempt to send a webhook.
    pub async fn wait_for_delivery(&self, what: &str, is_meant: impl Fn(&Delivery) -> bool) -> Delivery {
        find(self.deliveries.subscribe(), what, is_meant).await
    }
}

async fn find<T: Clone>(mut all: watch::Receiver<Vec<T>>, what: &str, is_meant: impl Fn(&T) -> bool) -> T {
    let found = crate::within(what, all.wait_for(|all| all.iter().any(&is_meant))).await;
    let found = found.expect("a double");
    found.iter().find(|item| is_meant(item)).cloned().expect("what was found")
}

#[cfg(test)]
mod tests;
