//! What the broker adds: to a push, the inspection of its commits; to a connection of a session, the checks of the proxy.

use crate::{
    Options, Stack,
    bench::{
        figure::{Figure, Target},
        samples::Samples,
    },
    doors,
    settings::Outside,
    turn::output,
};
use rpc::v1;
use serde_json::json;
use std::{
    path::Path,
    time::{Duration, Instant},
};
use testkit::{
    git::{Repository, repository},
    git_server::GitServer,
    tls::client::TlsClient,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
};

/// The name by which the broker knows the server. Others reach it as `localhost`.
const HOST: &str = "git.example.com";
const TOKEN: &str = "token-of-the-benchmark";
const AT: &str = "acme/app.git";
/// A request that the server answers at once: it has no login.
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: git.example.com\r\nConnection: close\r\n\r\n";
/// The answer of the proxy to a tunnel that it opens.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// The target for a whole push; milliseconds.
const PUSH_MS: f64 = 200.0;
/// The target for what the proxy adds to a connection; milliseconds.
const PROXY_MS: f64 = 1.0;

/// The sizes of the measurements.
#[derive(Debug, Clone)]
pub struct Sizes {
    pushes: usize,
    connections: usize,
}

impl Sizes {
    /// Returns the sizes for the report.
    pub fn full() -> Self {
        Self { pushes: 20, connections: 1_000 }
    }

    /// Returns small sizes, to check that it runs.
    pub fn smoke() -> Self {
        Self { pushes: 1, connections: 2 }
    }
}

/// Measures pushes of one small commit, and connections to a server with TLS, each with the broker and without it.
pub async fn measure(sizes: &Sizes) -> Vec<Figure> {
    let site = Site::start().await;
    let mut figures = site.pushes(sizes.pushes).await;
    figures.extend(site.connections(sizes.connections).await);
    figures
}

/// A stack with a broker, a server of git, and a session on a repository of this server.
struct Site {
    server: GitServer,
    app: Repository,
    stack: Stack,
    session: String,
}

impl Site {
    async fn start() -> Self {
        let server = GitServer::start(&[HOST, "localhost"]).await;
        server.require(&format!("x-access-token:{TOKEN}"));
        let app = repository(&[("file", "first\n")]);
        server.push(AT, &app);
        let outside = Outside {
            hosts: vec![format!("{HOST}={}", server.address)],
            git_certificate: Some(server.certificate.clone()),
            ..Outside::default()
        };
        let stack = Stack::with(Options { broker: true, outside, ..Options::default() }).await;
        let prefix = format!("https://{HOST}/acme/");
        let git = json!({"credentials": {&prefix: "TOKEN"}, "push": {&prefix: {"credential": "TOKEN"}}});
        stack.api.set_environment("", &json!({"git": git, "network": {"allow": [HOST]}})).await;
        stack.api.set_secret("TOKEN", TOKEN).await;
        let from = Some(v1::source::From::GitUrl(format!("https://{HOST}/{AT}")));
        let session = stack.api.session(Some(v1::Source { from, revision: String::new() })).await;
        Self { server, app, stack, session }
    }

    /// Pushes a commit of the session, and one of a clone, alternately.
    async fn pushes(&self, rounds: usize) -> Vec<Figure> {
        let directory = tempfile::tempdir().expect("a directory");
        let certificate = directory.path().join("git.pem");
        std::fs::write(&certificate, &self.server.certificate).expect("a certificate");
        let (mut inspected, mut plain) = (Samples::default(), Samples::default());
        for round in 0..rounds {
            inspected.push(self.push_session(round).await);
            plain.push(self.push_clone(round, &certificate).await);
        }
        let added = "what inspection and services add to it, median";
        let added = Figure::difference(added, &inspected, &plain, 50, Target::None);
        vec![
            Figure::times("inspected push of a small commit", inspected, Target::AtMost(PUSH_MS)),
            Figure::times("plain `git push` of a small commit", plain, Target::None),
            added,
        ]
    }

    async fn push_session(&self, round: usize) -> Duration {
        let api = &self.stack.api;
        output(api, &self.session, &format!("echo {round} > file")).await.expect("a changed file");
        let request = v1::PushSessionRequest { session_id: self.session.clone(), ..Default::default() };
        let begun = Instant::now();
        let pushed = api.sessions().push_session(request).await.expect("a push").into_inner();
        let duration = begun.elapsed();
        assert_eq!((pushed.commits, pushed.files), (1, 1));
        duration
    }

    async fn push_clone(&self, round: usize, certificate: &Path) -> Duration {
        std::fs::write(self.app.path().join("file"), format!("{round}\n")).expect("a file");
        self.app.git(&["commit", "--quiet", "--all", "--message=change"]);
        let port = self.server.address.port();
        let mut git = Command::new("git");
        git.arg("-C").arg(self.app.path()).args(["push", "--quiet"]);
        git.args([
            format!("https://x-access-token:{TOKEN}@localhost:{port}/{AT}"),
            "HEAD:refs/heads/plain".to_owned(),
        ]);
        git.env("GIT_SSL_CAINFO", certificate);
        git.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
        let begun = Instant::now();
        assert!(git.status().await.expect("git").success());
        begun.elapsed()
    }

    /// Connects through the door of the session, and without it, alternately.
    async fn connections(&self, rounds: usize) -> Vec<Figure> {
        // The turn opens the door.
        output(&self.stack.api, &self.session, "true").await.expect("a turn");
        let client = TlsClient::new(HOST, &self.server.certificate);
        let (mut proxied, mut direct) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            proxied.push(self.connect_proxied(&client).await);
            direct.push(self.connect_directly(&client).await);
        }
        let difference = |name, percent, target| Figure::difference(name, &proxied, &direct, percent, target);
        let added = [
            difference("what the proxy adds, median", 50, Target::AtMost(PROXY_MS)),
            difference("what the proxy adds, 99th percentile", 99, Target::None),
        ];
        let times = [
            Figure::times("CONNECT to the first byte of the answer", proxied, Target::None),
            Figure::times("connection to the same server, without a proxy", direct, Target::None),
        ];
        times.into_iter().chain(added).collect()
    }

    async fn connect_proxied(&self, client: &TlsClient) -> Duration {
        let mut door = doors::connect(&self.stack, &self.session, "socket").await;
        let request = format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n");
        let begun = Instant::now();
        door.write_all(request.as_bytes()).await.expect("a request that is sent");
        let mut answer = [0; ESTABLISHED.len()];
        door.read_exact(&mut answer).await.expect("an answer of the proxy");
        assert_eq!(answer, ESTABLISHED);
        client.ask(door, REQUEST).await;
        begun.elapsed()
    }

    async fn connect_directly(&self, client: &TlsClient) -> Duration {
        let begun = Instant::now();
        let connection = TcpStream::connect(self.server.address).await.expect("a connection");
        client.ask(connection, REQUEST).await;
        begun.elapsed()
    }
}
