//! The door of a session to the servers of git, with real requests, a real vault and a real server behind TLS.

#[path = "git/lfs.rs"]
mod lfs;

use crate::harness::Broker;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rpc::v1;
use std::{
    fs,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};
use tempfile::TempDir;
use testkit::{
    git::repository,
    git_server::{GitServer, rules::GitFault},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

const HOST: &str = "git.example.com";
const SESSION: &str = "ses_a";
const REFS: &str = "info/refs?service=git-upload-pack";
const TOKEN: &str = "token-4711";

/// A broker that finds a server of git on this machine, and the door of a session.
struct Testbed {
    server: GitServer,
    broker: Broker,
    directory: TempDir,
}

impl Testbed {
    async fn start() -> Self {
        Self::trusting(|server| server.certificate.clone()).await
    }

    /// With a broker that trusts this certificate.
    async fn trusting(certificate: impl FnOnce(&GitServer) -> String) -> Self {
        let trusted = certificate;
        let server = GitServer::start(&[HOST, "other.example.com"]).await;
        let files = repository(&[("file", "private\n")]);
        for path in ["acme/app.git", "acme/sub/app.git", "other/app.git"] {
            server.push(path, &files);
        }
        server.require(&format!("x-access-token:{TOKEN}"));
        let directory = tempfile::tempdir().unwrap();
        let certificate = directory.path().join("ca.pem");
        fs::write(&certificate, trusted(&server)).unwrap();
        let egress = directory.path().join("egress");
        let [host, other] = [HOST, "other.example.com"].map(|host| format!("{host}={}", server.address));
        let (egress, certificate) = (egress.to_str().unwrap(), certificate.to_str().unwrap());
        let arguments = ["--egress", egress, "--git-ca", certificate, "--hosts", &host, "--hosts", &other];
        let broker = Broker::start(&arguments).await;
        broker.put_secret(None, "TOKEN", TOKEN).await;
        let testbed = Self { server, broker, directory };
        testbed.open(&[(&format!("https://{HOST}/acme/"), "TOKEN")]).await.unwrap();
        testbed
    }

    /// Opens the door of the session for these prefixes.
    async fn open(&self, credentials: &[(&str, &str)]) -> Result<(), tonic::Status> {
        let credentials = credentials.iter().map(|(prefix, secret)| v1::GitCredential {
            url_prefix: (*prefix).to_owned(),
            secret: (*secret).to_owned(),
        });
        let request = v1::OpenEgressRequest {
            tenant_id: self.broker.tenants[0].to_string(),
            session_id: SESSION.to_owned(),
            lists: vec![],
            project_id: self.broker.project.to_string(),
            git_credentials: credentials.collect(),
            ..Default::default()
        };
        self.broker.client.clone().open_egress(request).await.map(drop)
    }

    /// Opens the door of the session for the prefix of the other tests and a public repository.
    async fn open_public(&self, url: &str) -> Result<(), tonic::Status> {
        let credential =
            v1::GitCredential { url_prefix: format!("https://{HOST}/acme/"), secret: "TOKEN".to_owned() };
        let request = v1::OpenEgressRequest {
            tenant_id: self.broker.tenants[0].to_string(),
            session_id: SESSION.to_owned(),
            git_credentials: vec![credential],
            public_repository: url.to_owned(),
            ..Default::default()
        };
        self.broker.client.clone().open_egress(request).await.map(drop)
    }

    fn door(&self) -> PathBuf {
        let tenant = self.broker.tenants[0].to_string();
        self.directory.path().join("egress").join(tenant).join(SESSION).join("door")
    }

    /// Sends a request with no body to the door, and returns the head and the body of the answer.
    async fn ask(&self, line: &str) -> String {
        ask(&self.door(), line, "").await
    }

    /// The code of a refusal.
    async fn code(&self, line: &str) -> String {
        code(&self.ask(line).await)
    }
}

async fn connect(door: &Path) -> UnixStream {
    // The address of a socket has at most 107 bytes, fewer than the path may have.
    let opened = fs::File::open(door).unwrap();
    UnixStream::connect(format!("/proc/self/fd/{}/git", opened.as_raw_fd())).await.unwrap()
}

pub async fn ask(door: &Path, line: &str, rest: &str) -> String {
    let mut stream = connect(door).await;
    let request = format!("{line} HTTP/1.1\r\nHost: 127.0.0.1:3129\r\nConnection: close\r\n{rest}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![];
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn code(answer: &str) -> String {
    let code = answer.lines().find_map(|line| line.strip_prefix("x-flotilla-code: "));
    let status = answer.split(' ').nth(1).unwrap_or_default();
    code.unwrap_or(status).to_owned()
}

fn refs(path: &str) -> String {
    format!("GET /{HOST}/{path}/{REFS}")
}

#[tokio::test]
async fn references_are_read_with_the_credential_that_the_client_never_has() {
    let testbed = Testbed::start().await;
    let headers = "Git-Protocol: version=2\r\nAuthorization: Basic bWluZQ==\r\nCookie: a=b\r\nX-Own: x\r\n";
    let answer = ask(&testbed.door(), &refs("acme/app.git"), headers).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains("application/x-git-upload-pack-advertisement") && answer.contains("version 2"),
        "{answer}"
    );
    let requests = testbed.server.requests();
    let request = &requests[0];
    assert_eq!(requests.len(), 1);
    assert_eq!((request.host.as_str(), request.protocol.as_deref()), (HOST, Some("version=2")));
    assert_eq!(
        request.authorization,
        Some(format!("Basic {}", STANDARD.encode(format!("x-access-token:{TOKEN}"))))
    );
    let encoded = STANDARD.encode(TOKEN);
    for shown in [answer, testbed.broker.log(), fs::read_to_string(testbed.door().join("gitconfig")).unwrap()]
    {
        assert!(!shown.contains(TOKEN) && !shown.contains(encoded.trim_end_matches('=')), "{shown}");
    }
    let rules = fs::read_to_string(testbed.door().parent().unwrap().join("rules.json")).unwrap();
    assert!(rules.contains("\"TOKEN\"") && !rules.contains(TOKEN), "{rules}");
}

#[tokio::test]
async fn nothing_but_reading_below_a_prefix_passes() {
    let testbed = Testbed::start().await;
    for (line, want) in [
        (refs("acme/app.git"), "200"),
        (refs("acme/sub/app.git"), "200"),
        (refs("other/app.git"), "git_prefix_missing"),
        (refs("acme-other/app.git"), "git_prefix_missing"),
        (refs("Acme/app.git"), "git_prefix_missing"),
        (refs("acme"), "git_prefix_missing"),
        (format!("GET /other.example.com/acme/app.git/{REFS}"), "git_prefix_missing"),
        (format!("GET /{HOST}:8443/acme/app.git/{REFS}"), "git_prefix_missing"),
        (refs("acme/../other/app.git"), "git_address_invalid"),
        (refs("acme/%2e%2e/other/app.git"), "git_address_invalid"),
        (refs("acme/..%2fother/app.git"), "git_address_invalid"),
        (refs("acme%2fapp.git"), "git_address_invalid"),
        (refs("acme//app.git"), "git_address_invalid"),
        (refs("/acme/app.git"), "git_address_invalid"),
        (format!("GET /x@{HOST}/acme/app.git/{REFS}"), "git_address_invalid"),
        (format!("GET /127.0.0.1/acme/app.git/{REFS}"), "git_address_invalid"),
        (format!("GET https://{HOST}/acme/app.git/{REFS}"), "git_request_refused"),
        (format!("GET /{HOST}/acme/app.git/info/refs"), "git_request_refused"),
        (format!("GET /{HOST}/acme/app.git/HEAD"), "git_request_refused"),
        (format!("GET /{HOST}/acme/app.git/objects/info/packs"), "git_request_refused"),
        (format!("GET /{HOST}/acme/app.git/{REFS}&x=y"), "git_request_refused"),
        (format!("POST /{HOST}/acme/app.git/{REFS}"), "git_request_refused"),
        (format!("PUT /{HOST}/acme/app.git/git-upload-pack"), "git_request_refused"),
        (format!("GET /{HOST}/acme/app.git/info/refs?service=git-receive-pack"), "git_push_refused"),
        (format!("POST /{HOST}/acme/app.git/git-receive-pack"), "git_push_refused"),
    ] {
        let before = testbed.server.requests().len();
        assert_eq!(testbed.code(&line).await, want, "{line}");
        let asked = testbed.server.requests().len() - before;
        assert_eq!(asked, usize::from(want == "200"), "{line} reached the server");
    }
    let told = testbed.ask(&format!("GET /{HOST}/acme/app.git/info/refs?service=git-receive-pack")).await;
    assert!(
        told.starts_with("HTTP/1.1 403")
            && told.contains("text/plain")
            && told.contains("sessions cannot push by themselves"),
        "{told}"
    );
}

#[tokio::test]
async fn every_failure_of_a_server_has_a_code_and_names_the_secret() {
    let testbed = Testbed::start().await;
    let at = "app.git/info/refs";
    let line = refs("acme/app.git");
    let elsewhere = format!("https://evil.example.com/acme/app.git/{REFS}");
    let within = format!("https://{HOST}/acme/moved.git/{REFS}");
    for (fault, want, text) in [
        (GitFault::Status(401), "git_unauthorized", "refuses the secret TOKEN"),
        (GitFault::Status(403), "git_unauthorized", "flotilla secret set TOKEN"),
        (GitFault::Status(404), "git_not_found", "or the secret TOKEN may not read it"),
        (GitFault::Status(429), "git_busy", "429"),
        (GitFault::Status(500), "git_failed", "answered 500"),
        (GitFault::Page, "git_failed", "does not answer as a server of git"),
        (
            GitFault::Redirect(within),
            "git_redirected",
            "redirects to https://git.example.com/acme/moved.git;",
        ),
        (
            GitFault::Redirect(elsewhere),
            "git_redirected",
            "redirects to https://evil.example.com/acme/app.git;",
        ),
    ] {
        testbed.server.fail(at, fault.clone());
        let before = testbed.server.requests().len();
        let answer = testbed.ask(&line).await;
        assert_eq!(code(&answer), want, "{fault:?}");
        assert!(answer.contains(text) && !answer.contains("a page of the server"), "{answer}");
        // Git would ask a person for a password after 401.
        assert!(!answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert_eq!(testbed.server.requests().len(), before + 1, "no redirect is followed");
    }
    testbed.server.heal(at);
    assert_eq!(testbed.code(&line).await, "200");
    testbed.server.fail(at, GitFault::Truncate(100));
    let cut = testbed.ask(&line).await;
    assert!(
        cut.starts_with("HTTP/1.1 200") && !cut.ends_with("0\r\n\r\n"),
        "the last piece is missing: {cut}"
    );
}

#[tokio::test]
async fn a_secret_goes_only_to_the_servers_that_it_was_set_for() {
    let testbed = Testbed::start().await;
    let broker = &testbed.broker;
    broker.put_secret_for(None, "TOKEN", TOKEN, &[&format!("https://{HOST}/acme/")]).await;
    assert_eq!(testbed.code(&refs("acme/app.git")).await, "200");
    let shown = || testbed.server.requests().iter().filter(|request| request.authorization.is_some()).count();
    let before = shown();
    // As a worker that was taken over names other servers and other repositories.
    for (prefix, line) in [
        (
            "https://other.example.com/",
            "GET /other.example.com/acme/app.git/info/refs?service=git-upload-pack",
        ),
        (&*format!("https://{HOST}/other/"), &*refs("other/app.git")),
    ] {
        testbed.open(&[(prefix, "TOKEN")]).await.unwrap();
        let told = testbed.ask(line).await;
        assert_eq!(code(&told), "git_secret_not_for_server", "{told}");
        assert!(told.contains("--for URL") && !told.contains(TOKEN), "{told}");
    }
    assert_eq!(shown(), before, "no server got it");
    // A next version is for the same servers, unless it names others.
    broker.put_secret(None, "TOKEN", TOKEN).await;
    assert_eq!(testbed.code(&refs("other/app.git")).await, "git_secret_not_for_server");
    broker.put_secret_for(None, "TOKEN", TOKEN, &[&format!("https://{HOST}/")]).await;
    assert_eq!(testbed.code(&refs("other/app.git")).await, "200");
}

#[tokio::test]
async fn a_secret_counts_as_it_is_at_this_moment_and_only_for_its_tenant() {
    let testbed = Testbed::start().await;
    let (broker, line) = (&testbed.broker, refs("acme/app.git"));
    assert_eq!(testbed.code(&line).await, "200");
    broker.put_secret(None, "TOKEN", "expired").await;
    assert_eq!(testbed.code(&line).await, "git_unauthorized");
    // That of the project comes first.
    broker.put_secret(Some(&broker.project), "TOKEN", &format!("x-access-token:{TOKEN}\n")).await;
    assert_eq!(testbed.code(&line).await, "200");
    broker.put_secret(Some(&broker.project), "TOKEN", "two words").await;
    let told = testbed.ask(&line).await;
    assert!(code(&told) == "git_secret_invalid" && !told.contains("two words"), "{told}");
    testbed.open(&[(&format!("https://{HOST}/acme/"), "MISSING")]).await.unwrap();
    let told = testbed.ask(&line).await;
    assert!(code(&told) == "git_secret_missing" && told.contains("flotilla secret set MISSING"), "{told}");
    // The longest prefix counts, from the next request on.
    broker.put_secret(None, "SUB", TOKEN).await;
    let prefixes = [format!("https://{HOST}/acme/"), format!("https://{HOST}/acme/sub/app")];
    testbed.open(&[(&prefixes[0], "MISSING"), (&prefixes[1], "SUB")]).await.unwrap();
    assert_eq!(testbed.code(&refs("acme/sub/app.git")).await, "200");
    assert_eq!(testbed.code(&refs("acme/app.git")).await, "git_secret_missing");
    testbed.open(&[]).await.unwrap();
    assert_eq!(testbed.code(&line).await, "git_prefix_missing");
    assert_eq!(fs::read_to_string(testbed.door().join("gitconfig")).unwrap(), "");

    // Another tenant with the same settings has no such secret.
    let request = v1::OpenEgressRequest {
        tenant_id: broker.tenants[1].to_string(),
        session_id: SESSION.to_owned(),
        project_id: broker.project.to_string(),
        git_credentials: vec![v1::GitCredential {
            url_prefix: prefixes[0].clone(),
            secret: "SUB".to_owned(),
        }],
        ..Default::default()
    };
    broker.client.clone().open_egress(request).await.unwrap();
    let door = testbed
        .directory
        .path()
        .join("egress")
        .join(broker.tenants[1].to_string())
        .join(SESSION)
        .join("door");
    assert_eq!(code(&ask(&door, &line, "").await), "git_secret_missing");
}

#[tokio::test]
async fn a_server_that_cannot_prove_its_name_gets_no_credential() {
    let impostor = GitServer::start(&["evil.example.com"]).await;
    let unknown = Testbed::trusting(|_| impostor.certificate.clone()).await;
    let told = unknown.ask(&refs("acme/app.git")).await;
    assert!(code(&told) == "git_unreachable" && told.contains("certificate"), "{told}");
    assert_eq!(unknown.server.requests(), []);
    let testbed = Testbed::start().await;
    assert_eq!(testbed.code(&refs("acme/app.git")).await, "200", "with its own certificate it is trusted");
}

#[tokio::test]
async fn wrong_rules_open_nothing() {
    let testbed = Testbed::start().await;
    let many: Vec<_> = (0..33).map(|number| format!("https://{HOST}/{number}/")).collect();
    let many: Vec<_> = many.iter().map(|prefix| (prefix.as_str(), "TOKEN")).collect();
    for (rules, want) in [
        (&[("http://git.example.com/", "TOKEN")][..], "git_prefix_invalid"),
        (&[("https://u:hunter2@git.example.com/", "TOKEN")], "git_prefix_invalid"),
        (&[("https://git.example.com/", "a value")], "secret_name_invalid"),
        (&many, "git_prefix_invalid"),
    ] {
        let status = testbed.open(rules).await.unwrap_err();
        assert_eq!(rpc::status::code_of(&status).unwrap(), want);
        assert!(!status.message().contains("hunter2"), "{status:?}");
    }
    // The rules before them still count.
    assert_eq!(testbed.code(&refs("acme/app.git")).await, "200");
}

#[tokio::test]
async fn requests_are_bounded_and_each_leaves_a_line_of_audit() {
    let testbed = Testbed::start().await;
    let post = format!("POST /{HOST}/acme/app.git/git-upload-pack");
    let announced = format!("Content-Length: {}\r\n", 32 * 1024 * 1024 + 1);
    assert_eq!(code(&ask(&testbed.door(), &post, &announced).await), "git_request_too_large");
    assert_eq!(testbed.server.requests(), [], "nothing of it reached the server");
    assert_eq!(testbed.code(&refs("acme/app.git")).await, "200");
    assert_eq!(testbed.code(&refs("other/app.git")).await, "git_prefix_missing");
    let log = testbed.broker.log();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let audit: Vec<_> = lines
        .map(|line| line["fields"].clone())
        .filter(|fields| fields["message"] == "a session used the network")
        .map(|fields| {
            let word = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
            (
                word("host"),
                word("error.code"),
                word("git.prefix"),
                word("secret.name"),
                fields["secret.version"].as_u64(),
            )
        })
        .collect();
    let (host, none) = (HOST.to_owned(), String::new);
    assert_eq!(
        audit,
        [
            (host.clone(), "git_request_too_large".to_owned(), none(), none(), None),
            (host.clone(), none(), format!("https://{HOST}/acme/"), "TOKEN".to_owned(), Some(1)),
            (host, "git_prefix_missing".to_owned(), none(), none(), None),
        ]
    );
    assert!(log.contains("a secret was used") && log.contains("environment.git.credentials"));
}

#[tokio::test]
async fn a_session_has_few_connections_at_a_time_and_further_ones_wait() {
    let testbed = Testbed::start().await;
    let mut open = vec![];
    for _ in 0..16 {
        let mut stream = connect(&testbed.door()).await;
        let request = format!("{} HTTP/1.1\r\nHost: x\r\n\r\n", refs("acme/app.git"));
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 15];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        open.push(stream);
    }
    // The next one has its own repository, so that the server tells it apart.
    let mut waiting = connect(&testbed.door()).await;
    let request = format!("{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", refs("acme/sub/app.git"));
    waiting.write_all(request.as_bytes()).await.unwrap();
    // Another session of the tenant is served meanwhile, several times.
    let request = v1::OpenEgressRequest {
        tenant_id: testbed.broker.tenants[0].to_string(),
        session_id: "ses_b".to_owned(),
        git_credentials: vec![v1::GitCredential {
            url_prefix: format!("https://{HOST}/acme/"),
            secret: "TOKEN".to_owned(),
        }],
        ..Default::default()
    };
    testbed.broker.client.clone().open_egress(request).await.unwrap();
    let other = testbed.door().parent().unwrap().with_file_name("ses_b").join("door");
    for _ in 0..5 {
        assert_eq!(code(&ask(&other, &refs("acme/app.git"), "").await), "200");
    }
    let is_served = || testbed.server.requests().iter().any(|request| request.target.contains("/sub/"));
    assert!(!is_served(), "it waits while the others are open");
    open.pop();
    let mut first = [0; 15];
    let answer = waiting.read_exact(&mut first);
    testkit::within("the next connection has its turn", answer).await.unwrap();
    assert!(&first == b"HTTP/1.1 200 OK" && is_served());
}
