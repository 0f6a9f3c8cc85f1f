//! The state of the double: emulate's GitHub service and its corrections, in a process of Node that ends with the test.
// Continues in `state/main.mjs`.

use super::rules::Delivery;
use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
};
use reqwest::{Client, Response, redirect::Policy};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::watch,
};

/// Where `./dev` installs packages of npm, relative to this crate's directory.
const MODULES: &str = "../../.flotilla/tools/node_modules";
/// The program of the state, relative to this crate's directory.
const PROGRAM: &str = "src/forge/state/main.mjs";
/// The token of an administrator, for the double itself.
const ADMINISTRATOR: &str = "ghp_administrator";

/// Node and emulate, as `./dev` installs them.
#[derive(Debug)]
pub(super) struct NodePackages {
    node: PathBuf,
    modules: PathBuf,
}

impl NodePackages {
    pub(super) fn find() -> Option<Self> {
        let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULES).canonicalize().ok()?;
        let nodes = ["x64", "arm64"].map(|machine| modules.join(format!("node-linux-{machine}/bin/node")));
        let node = nodes.into_iter().find(|node| node.exists())?;
        modules.join("emulate").exists().then_some(Self { node, modules })
    }

    /// Starts the state of a double. It reports every attempt to send a webhook.
    pub(super) async fn start(
        &self,
        settings: StateSettings<'_>,
        deliveries: watch::Sender<Vec<Delivery>>,
    ) -> (Emulator, Child) {
        let StateSettings { url, root, app } = settings;
        let settings = json!({
            "modules": self.modules, "url": url, "root": root, "admin": ADMINISTRATOR, "application": app,
        });
        let mut command = Command::new(&self.node);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM)).arg(settings.to_string());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // It ends with its standard input, also when this process is killed.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("Node");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let port = crate::within("emulate starts", lines.next_line()).await.expect("a line").expect("a port");
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let delivery = serde_json::from_str(&line).expect("a delivery");
                deliveries.send_modify(|all| all.push(delivery));
            }
        });
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().expect("a client");
        (Emulator { client, origin: format!("http://127.0.0.1:{port}") }, child)
    }
}

/// What the state is told at its start.
#[derive(Debug)]
pub(super) struct StateSettings<'a> {
    /// That of the double.
    pub(super) url: &'a str,
    /// The directory of the bare repositories.
    pub(super) root: &'a Path,
    pub(super) app: &'a Value,
}

/// What somebody may do with a repository over git.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Access {
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// `None`: nobody says who they are.
    pub(super) login: Option<String>,
}

/// The way to the state.
#[derive(Debug, Clone)]
pub(super) struct Emulator {
    client: Client,
    origin: String,
}

impl Emulator {
    pub(super) async fn forward(
        &self,
        method: Method,
        target: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        let request = self.client.request(method, format!("{}{target}", self.origin)).headers(headers);
        request.body(body).send().await.expect("the state of the double")
    }

    /// Tells the state something, as the administrator.
    pub(super) async fn tell(&self, door: &str, message: &Value) {
        let administrator = HeaderValue::from_str(&format!("token {ADMINISTRATOR}")).expect("a header");
        let response = self.open(door, message, Some(&administrator)).await;
        let status = response.status();
        let text = response.text().await.expect("an answer of the state");
        assert!(status.is_success(), "the state of the double at {door}: {text}");
    }

    /// Asks what somebody may do with a repository.
    ///
    /// # Errors
    /// The status with which the double refuses them.
    pub(super) async fn access(
        &self,
        repository: &str,
        authorization: Option<&HeaderValue>,
    ) -> Result<Access, StatusCode> {
        let response = self.open("access", &json!({"repository": repository}), authorization).await;
        match response.status() {
            StatusCode::OK => Ok(response.json().await.expect("what somebody may do")),
            refusal => Err(refusal),
        }
    }

    /// Lets the state read what somebody pushed.
    pub(super) async fn read_push(&self, repository: &str, authorization: Option<&HeaderValue>) {
        let response = self.open("pushes", &json!({"repository": repository}), authorization).await;
        let status = response.status();
        let text = response.text().await.expect("an answer of the state");
        assert!(status.is_success(), "a push to {repository}: {text}");
    }

    async fn open(&self, door: &str, message: &Value, authorization: Option<&HeaderValue>) -> Response {
        let headers = authorization.map(|value| (header::AUTHORIZATION, value.clone()));
        let headers = HeaderMap::from_iter(headers);
        let body = Bytes::from(message.to_string());
        self.forward(Method::POST, &format!("/_forge/{door}"), headers, body).await
    }
}
