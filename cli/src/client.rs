//! The connection to a gateway: its address, the API key, and calls that survive a short outage.

use crate::{
    exit::{self, GatewayLoss, NO_GATEWAY, coded},
    stack::target::{self, Connection, Target},
    terminal::output::Output,
};
use anyhow::{Context as _, Result, bail};
use chassis::secret::Secret;
use domain::{limits, text};
use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use rpc::{
    client::Bearer,
    v1::{
        ErrorCode, GetSessionRequest, ListSessionChildrenRequest, Page, Session,
        admin_service_client::AdminServiceClient, audit_service_client::AuditServiceClient,
        environment_service_client::EnvironmentServiceClient, event_service_client::EventServiceClient,
        github_service_client::GithubServiceClient, message_service_client::MessageServiceClient,
        permission_service_client::PermissionServiceClient, project_service_client::ProjectServiceClient,
        prompt_service_client::PromptServiceClient, pty_service_client::PtyServiceClient,
        question_service_client::QuestionServiceClient, secret_service_client::SecretServiceClient,
        session_service_client::SessionServiceClient, settings_service_client::SettingsServiceClient,
        tenant_service_client::TenantServiceClient,
    },
};
use serde_json::Value;
use std::{
    future::Future,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::Arc,
    task::{self, Poll},
    time::Duration,
};
use tonic::{
    Code, Response, Status,
    body::Body,
    codegen::{Service, http},
    service::interceptor::InterceptedService,
    transport::{Channel, Uri},
};

/// Further attempts of one call of the command line while the gateway is down: about three seconds, enough for a restart
/// behind a load balancer. Then the command fails.
const CLI_CALL_RETRIES_MAX: u32 = 4;
/// First pause of the command line between two attempts, doubled each time; milliseconds.
const CLI_BACKOFF_BASE_MS: u64 = 200;
/// Longest pause of the command line between two attempts; milliseconds.
const CLI_BACKOFF_CAP_MS: u64 = 5_000;

/// Longest wait for an answer of the HTTP API, in which everything is small but the session of `export`.
const HTTP_WITHIN: Duration = Duration::from_secs(60);
/// Longest answer of the HTTP API in bytes: what a message of gRPC may have, which carries the same objects. A longer one is an error.
const HTTP_BYTES_MAX: usize = rpc::MESSAGE_BYTES_MAX;
/// The header that names the directory of a request; the path is percent-encoded.
const DIRECTORY: &str = "x-opencode-directory";

/// A channel that presents the API key with every call.
pub(crate) type Authorized = InterceptedService<NamedChannel, Bearer>;

/// A channel whose errors name the address of the gateway.
#[derive(Debug, Clone)]
pub(crate) struct NamedChannel {
    channel: Channel,
    url: Arc<str>,
}

impl Service<http::Request<Body>> for NamedChannel {
    type Response = http::Response<Body>;
    type Error = GatewayLoss;
    type Future = BoxFuture<'static, Result<Self::Response, GatewayLoss>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), GatewayLoss>> {
        let Self { channel, url } = self;
        channel.poll_ready(context).map_err(|source| GatewayLoss { url: Arc::clone(url), source })
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let url = Arc::clone(&self.url);
        self.channel.call(request).map_err(|source| GatewayLoss { url, source }).boxed()
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    channel: NamedChannel,
    key: Bearer,
    /// The same key for the HTTP API.
    secret: Secret<String>,
}

impl Client {
    /// Finds the gateway and the key. The connection is made with the first call.
    pub(crate) fn open(connection: &Connection, output: &Output) -> Result<Self> {
        let target = choose(connection, output)?;
        Self::with_key(&target, &target.api_key, "--api-key or FLOTILLA_API_KEY")
    }

    /// Like [`Client::open`], with the operator's key: for calls that cross tenants.
    pub(crate) fn open_as_operator(
        connection: &Connection,
        output: &Output,
        key: Option<&Secret<String>>,
    ) -> Result<Self> {
        let target = choose(connection, output)?;
        let key = connection.operator_key(&target, key);
        Self::with_key(&target, key, "--operator-key or FLOTILLA_OPERATOR_KEY")
    }

    /// `setting`: how a person gives the key.
    fn with_key(target: &Target, key: &Secret<String>, setting: &str) -> Result<Self> {
        let (url, source) = (&target.url, &target.source);
        parse_url(url)?;
        if key.expose().is_empty() {
            return Err(coded(
                ErrorCode::KeyMissing,
                format!("no key for {url} ({source}); give one with {setting}"),
            ));
        }
        Self::at(url, key)
    }

    /// A client for an address and a key.
    ///
    /// # Errors
    /// `url_invalid`, `key_invalid`.
    pub(crate) fn at(url: &str, key: &Secret<String>) -> Result<Self> {
        parse_url(url)?;
        check_key(key)?;
        let channel = chassis::grpc::channel(url).context("open the connection")?;
        let channel = NamedChannel { channel, url: Arc::from(url) };
        let bearer = Bearer::new(key.expose()).context("use the key in a header")?;
        Ok(Self { channel, key: bearer, secret: key.clone() })
    }

    /// The address of the gateway.
    pub(crate) fn url(&self) -> &str {
        &self.channel.url
    }

    /// Reads a route of the gateway's HTTP API, which is OpenCode's. `directory`: the one that the route is about, if it is about one.
    ///
    /// # Errors
    /// `gateway_unreachable`, `key_refused`; `connection_lost`: the answer broke off; the code of any other refusal, in a sentence with its status; an
    /// answer of more than [`HTTP_BYTES_MAX`] bytes, and one that no gateway gives.
    pub(crate) async fn get_json(&self, path: &str, directory: Option<&Path>) -> Result<Value> {
        let url = format!("{}{path}", self.url().trim_end_matches('/'));
        let mut request = chassis::http::client()?.get(&url).bearer_auth(self.secret.expose());
        if let Some(directory) = directory {
            request = request.header(DIRECTORY, text::percent_encode(directory.as_os_str().as_bytes()));
        }
        let sent = request.timeout(HTTP_WITHIN).send().await;
        let mut answer = sent.map_err(|error| exit::unreachable_gateway(self.url(), &error))?;
        let status = answer.status();
        if status.as_u16() == 401 {
            return Err(coded("key_refused", "the gateway refused the API key"));
        }
        let mut body = vec![];
        let lost = |error: &(dyn std::error::Error + 'static)| {
            coded("connection_lost", format!("the answer of {url} broke off: {}", exit::cause(error)))
        };
        while let Some(piece) = answer.chunk().await.map_err(|error| lost(&error))? {
            if body.len() + piece.len() > HTTP_BYTES_MAX {
                bail!("{url} answered with more than {HTTP_BYTES_MAX} bytes");
            }
            body.extend_from_slice(&piece);
        }
        match (status.as_u16(), serde_json::from_slice::<Value>(&body)) {
            (200, Ok(value)) => Ok(value),
            (_, body) => {
                let body = body.unwrap_or_default();
                let data = &body["data"];
                let message = data["message"].as_str().unwrap_or(NO_GATEWAY);
                let message = format!("{url} answered {status}: {message}");
                match data["ref"].as_str() {
                    Some(code) => Err(coded(code.to_owned(), message)),
                    None => bail!(message),
                }
            }
        }
    }

    fn authorized(&self) -> Authorized {
        InterceptedService::new(self.channel.clone(), self.key.clone())
    }

    pub(crate) fn sessions(&self) -> SessionServiceClient<Authorized> {
        SessionServiceClient::new(self.authorized()).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
    }

    pub(crate) fn prompts(&self) -> PromptServiceClient<Authorized> {
        PromptServiceClient::new(self.authorized())
    }

    pub(crate) fn projects(&self) -> ProjectServiceClient<Authorized> {
        ProjectServiceClient::new(self.authorized())
    }

    pub(crate) fn messages(&self) -> MessageServiceClient<Authorized> {
        MessageServiceClient::new(self.authorized()).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
    }

    pub(crate) fn events(&self) -> EventServiceClient<Authorized> {
        EventServiceClient::new(self.authorized()).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
    }

    pub(crate) fn questions(&self) -> QuestionServiceClient<Authorized> {
        QuestionServiceClient::new(self.authorized())
    }

    pub(crate) fn admin(&self) -> AdminServiceClient<Authorized> {
        AdminServiceClient::new(self.authorized())
    }

    pub(crate) fn audit(&self) -> AuditServiceClient<Authorized> {
        AuditServiceClient::new(self.authorized())
    }

    pub(crate) fn github(&self) -> GithubServiceClient<Authorized> {
        GithubServiceClient::new(self.authorized())
    }

    pub(crate) fn tenants(&self) -> TenantServiceClient<Authorized> {
        TenantServiceClient::new(self.authorized())
    }

    pub(crate) fn settings(&self) -> SettingsServiceClient<Authorized> {
        SettingsServiceClient::new(self.authorized())
    }

    pub(crate) fn secrets(&self) -> SecretServiceClient<Authorized> {
        SecretServiceClient::new(self.authorized())
    }

    pub(crate) fn environments(&self) -> EnvironmentServiceClient<Authorized> {
        EnvironmentServiceClient::new(self.authorized())
    }

    pub(crate) fn ptys(&self) -> PtyServiceClient<Authorized> {
        PtyServiceClient::new(self.authorized())
    }

    pub(crate) fn permissions(&self) -> PermissionServiceClient<Authorized> {
        PermissionServiceClient::new(self.authorized())
    }
}

/// Chooses the gateway, and says so if nobody did.
fn choose(connection: &Connection, output: &Output) -> Result<Target> {
    let target = target::choose(connection)?;
    if let (true, Some(name)) = (target.is_only_one, &target.context) {
        output.note(&format!(
            "using the context {name}, the only one; `flotilla context use {name}` makes it the current one"
        ));
    }
    Ok(target)
}

/// Reads the address of a gateway.
///
/// # Errors
/// `url_invalid`: it has no host, or its scheme is not one that a gateway speaks.
pub(crate) fn parse_url(url: &str) -> Result<Uri> {
    let uri = url.parse::<Uri>().ok().filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    uri.ok_or_else(|| {
        let message = format!(
            "{url:?} is not the address of a gateway: it needs http:// or https:// and a host, as in https://flotilla.example.com"
        );
        coded("url_invalid", message)
    })
}

/// Checks that a header can carry the key. The message must not show the key.
fn check_key(key: &Secret<String>) -> Result<()> {
    let odd = key.expose().chars().position(|c| !c.is_ascii_graphic() && c != ' ');
    match odd {
        None => Ok(()),
        Some(at) => Err(coded(
            "key_invalid",
            format!(
                "the key cannot be sent: its character {} is no ASCII letter, digit or punctuation; copy the key again",
                at + 1
            ),
        )),
    }
}

/// Makes a call, and repeats it with growing pauses while the gateway is UNAVAILABLE. Only for calls that may run
/// twice.
pub(crate) async fn call<T, Fut>(what: &'static str, mut attempt: impl FnMut() -> Fut) -> Result<T>
where
    Fut: Future<Output = Result<Response<T>, Status>>,
{
    let mut tries = 0;
    loop {
        match attempt().await {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) if status.code() == Code::Unavailable && tries < CLI_CALL_RETRIES_MAX => {
                tokio::time::sleep(backoff(tries)).await;
                tries += 1;
            }
            Err(status) => return Err(status).context(what),
        }
    }
}

/// Returns the pause after failed attempt number `tries`, counted from 0.
pub(crate) fn backoff(tries: u32) -> Duration {
    let base = CLI_BACKOFF_BASE_MS.saturating_mul(1_u64 << tries.min(16));
    Duration::from_millis(base.min(CLI_BACKOFF_CAP_MS))
}

pub(crate) async fn get_session(client: &Client, session_id: &str) -> Result<Session> {
    let request = || GetSessionRequest { session_id: session_id.to_owned() };
    let answer =
        call("load the session", || async { client.sessions().get_session(request()).await }).await?;
    Ok(answer.session.unwrap_or_default())
}

/// Loads all subtasks of a session, oldest first. A tree of sessions has a bounded number of them.
pub(crate) async fn list_children(client: &Client, session_id: &str) -> Result<Vec<Session>> {
    all_pages(async |page| {
        let request = ListSessionChildrenRequest { session_id: session_id.to_owned(), page: Some(page) };
        let list = async || client.sessions().list_session_children(request.clone()).await;
        let answer = call("list its subtasks", list).await?;
        Ok(Paged { entries: answer.sessions, next_cursor: answer.next_cursor })
    })
    .await
}

/// One page of a list.
pub(crate) struct Paged<T> {
    pub(crate) entries: Vec<T>,
    /// Empty: this is the last page.
    pub(crate) next_cursor: String,
}

/// The beginning of a list.
pub(crate) struct Listed<T> {
    pub(crate) entries: Vec<T>,
    pub(crate) has_more: bool,
}

/// Loads a whole list, page by page.
pub(crate) async fn all_pages<T>(load: impl AsyncFnMut(Page) -> Result<Paged<T>>) -> Result<Vec<T>> {
    Ok(first_pages(usize::MAX, load).await?.entries)
}

/// Loads the first `most` entries of a list, page by page.
pub(crate) async fn first_pages<T>(
    most: usize,
    mut load: impl AsyncFnMut(Page) -> Result<Paged<T>>,
) -> Result<Listed<T>> {
    let (mut entries, mut cursor) = (vec![], String::new());
    loop {
        let page = load(Page { limit: limits::PAGE_MAX, cursor }).await?;
        entries.extend(page.entries);
        cursor = page.next_cursor;
        if cursor.is_empty() || entries.len() >= most {
            let has_more = !cursor.is_empty() || entries.len() > most;
            entries.truncate(most);
            return Ok(Listed { entries, has_more });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn addresses_and_keys_that_no_call_can_use_are_refused() {
        let open = |url: &str, key: &str| Client::at(url, &Secret::new(key.to_owned())).err();
        for url in ["nope", "127.0.0.1:46477", "ftp://x", "http://", "", "http://a b", "/socket"] {
            let error = open(url, "key").unwrap();
            assert_eq!(exit::code(&error), "url_invalid", "{url:?}: {error}");
        }
        for key in ["é", "a\nb", "a\r"] {
            let error = open("http://127.0.0.1:1", key).unwrap();
            assert_eq!(exit::code(&error), "key_invalid", "{key:?}: {error}");
        }
        for url in ["http://127.0.0.1:1", "https://flotilla.example.com", "http://[::1]:80/"] {
            assert!(open(url, "flo_key-1").is_none(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_gateway_that_cannot_be_reached_is_named_with_the_cause() {
        // The port is free again: nothing listens on it.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let client = Client::at(&url, &Secret::new("key".to_owned())).unwrap();
        let request = GetSessionRequest { session_id: "ses_1".to_owned() };
        let error = anyhow::Error::new(client.sessions().get_session(request).await.unwrap_err());
        let sentence = exit::sentence(&error).unwrap();
        assert!(sentence.starts_with(&format!("cannot reach the gateway {url}: ")), "{sentence}");
        assert!(sentence.contains("refused"), "{sentence}");
        assert_eq!(exit::code(&error), "gateway_unreachable");
        assert!(!exit::is_answer(&error));
        let error = client.get_json("/session", None).await.unwrap_err();
        let sentence = exit::sentence(&error).unwrap();
        assert!(sentence.starts_with(&format!("cannot reach the gateway {url}: ")), "{sentence}");
        assert!(sentence.contains("refused"), "{sentence}");
        assert_eq!(exit::code(&error), "gateway_unreachable");
    }

    /// Serves one answer, and closes the connection.
    async fn answering(answer: String) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
            // The client may have left.
            drop(stream.write_all(answer.as_bytes()).await);
        });
        Client::at(&url, &Secret::new("key".to_owned())).unwrap()
    }

    #[tokio::test]
    async fn an_answer_that_is_no_result_says_why() {
        let answer = |status: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        };
        let refusal = r#"{"name":"UnknownError","data":{"message":"no such thing","ref":"thing_not_found"}}"#;
        for (answer, code, want) in [
            (answer("404 Not Found", refusal), "thing_not_found", "404 Not Found: no such thing"),
            (answer("401 Unauthorized", ""), "key_refused", "refused the API key"),
            (answer("200 OK", "<html>"), "command_failed", "this is no Flotilla gateway"),
            (answer("404 Not Found", "<html>"), "command_failed", "this is no Flotilla gateway"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".to_owned(), "connection_lost", "broke off"),
            (
                answer("200 OK", &" ".repeat(HTTP_BYTES_MAX + 1)),
                "command_failed",
                "with more than 12582912 bytes",
            ),
        ] {
            let error = answering(answer).await.get_json("/x", None).await.unwrap_err();
            let sentence = exit::sentence(&error).unwrap();
            assert_eq!(exit::code(&error), code, "{sentence}");
            assert!(sentence.contains(want), "{sentence}");
        }
        let value = answering(answer("200 OK", r#"{"a":1}"#)).await.get_json("/x", None).await.unwrap();
        assert_eq!(value["a"], 1);
    }
}
