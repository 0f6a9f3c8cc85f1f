//! Everything that the broker asks outside goes through the proxy of the operator's network, and nothing that the proxy must not see.

use crate::{
    egress::{check_tunnel, echo, exchange},
    git,
    harness::Broker,
    push,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use broker::{
    egress::proxy::{Proxy, QUOTA_BYTES},
    outside::{self, names::Names},
};
use domain::egress::allow::{AllowList, AllowLists};
use rpc::v1::{self, read_page_response::Part};
use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, sync::Arc};
use tempfile::TempDir;
use testkit::{
    git::repository,
    git_server::{GitServer, rules::LfsStore},
    registry::{REGISTRY_NAME, Registry},
    upstream_proxy::UpstreamProxy,
};

/// What the proxy wants, and the same in a URL.
const LOGIN: &str = "flotilla:p@ss-4711";
const URL_LOGIN: &str = "flotilla:p%40ss-4711";
const WRONG_LOGIN: &str = "flotilla:wr0ng-4711";
const GIT_HOST: &str = "git.example.com";
const STORE_HOST: &str = "store.example.com";
const PAGE_HOST: &str = "pages.example.com";
const REPOSITORY: &str = "acme/app.git";
const SESSION: &str = "ses_a";

/// A registry with TLS, the proxy that knows its name, and the file with its certificate.
struct Testbed {
    registry: Registry,
    proxy: UpstreamProxy,
    directory: TempDir,
}

impl Testbed {
    async fn start() -> Self {
        let registry = Registry::start_with_tls().await;
        let proxy = UpstreamProxy::start(LOGIN, &[(REGISTRY_NAME, registry.host.parse().unwrap())]).await;
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), registry.certificate.as_ref().unwrap()).unwrap();
        Self { registry, proxy, directory }
    }

    /// A broker that trusts the registry.
    async fn broker(&self, arguments: &[&str]) -> Broker {
        let ca = self.directory.path().join("ca.pem");
        Broker::start(&[&["--registry-ca", ca.to_str().unwrap()][..], arguments].concat()).await
    }
}

/// Fails if a text has the login, as it is or encoded.
fn check_hidden(text: &str) {
    for login in [LOGIN, WRONG_LOGIN] {
        let (password, encoded) = (login.split_once(':').unwrap().1, STANDARD.encode(login));
        for secret in [password, &password.replace('@', "%40"), encoded.trim_end_matches('=')] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

#[tokio::test]
async fn an_image_is_pulled_through_the_proxy_which_alone_knows_the_name() {
    let testbed = Testbed::start().await;
    let image = testbed.registry.push_image("acme/dev", &[b"layer"]);
    let file = testbed.directory.path().join("url");
    fs::write(&file, format!("{}\n", testbed.proxy.url(URL_LOGIN))).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let broker = testbed.broker(&["--upstream-proxy-file", file.to_str().unwrap()]).await;
    let resolved = broker.resolve(&format!("{REGISTRY_NAME}/acme/dev"), "").await.unwrap();
    assert_eq!(resolved.digest, image.digest);
    assert_eq!(broker.pull(&resolved.reference, &image.layers[0]).await.unwrap(), b"layer");
    let requests = testbed.proxy.requests();
    let want = format!("CONNECT {REGISTRY_NAME}:443");
    assert!(!requests.is_empty() && requests.iter().all(|request| *request == want), "{requests:?}");
    check_hidden(&broker.log());
}

#[tokio::test]
async fn the_proxy_is_not_asked_for_private_addresses_and_local_names() {
    let testbed = Testbed::start().await;
    let broker = testbed.broker(&["--upstream-proxy", &testbed.proxy.url(URL_LOGIN)]).await;
    let refused = broker.refusal(&format!("{}/app", testbed.registry.host), "").await;
    assert!(refused.contains("FLOTILLA_BROKER_NETWORKS"), "{refused}");
    let port = testbed.registry.host.rsplit_once(':').unwrap().1;
    let refused = broker.refusal(&format!("localhost:{port}/app"), "").await;
    assert!(refused.contains("FLOTILLA_BROKER_UPSTREAM_PROXY_EXCEPT"), "{refused}");
    assert_eq!((testbed.proxy.requests(), testbed.registry.requests()), (vec![], vec![]));
}

#[tokio::test]
async fn exceptions_are_reached_without_the_proxy() {
    let testbed = Testbed::start().await;
    let image = testbed.registry.push_image("app", &[b"layer"]);
    let url = testbed.proxy.url(URL_LOGIN);
    let through = ["--upstream-proxy", &url, "--networks", "127.0.0.0/8"];
    let excepting = [&through[..], &["--upstream-proxy-except", ".acme.dev,127.0.0.0/8"]].concat();
    testbed.broker(&excepting).await.resolve(&image.name, "").await.unwrap();
    assert_eq!(testbed.proxy.requests(), Vec::<String>::new());
    testbed.broker(&through).await.resolve(&image.name, "").await.unwrap();
    let requests = testbed.proxy.requests();
    assert!(requests.contains(&format!("CONNECT {}", testbed.registry.host)), "{requests:?}");
}

#[tokio::test]
async fn what_the_proxy_does_is_told_without_its_login() {
    let testbed = Testbed::start().await;
    let name = format!("{REGISTRY_NAME}/app");
    let address = testbed.proxy.address.to_string();
    let broker = testbed.broker(&["--upstream-proxy", &testbed.proxy.url(WRONG_LOGIN)]).await;
    let refused = broker.refusal(&name, "").await;
    assert!(
        refused.starts_with("registry_unreachable: ")
            && refused
                .contains(&format!("the upstream proxy {address} refuses the login of the broker (407)")),
        "{refused}"
    );
    check_hidden(&refused);
    check_hidden(&broker.log());

    let broker = testbed.broker(&["--upstream-proxy", &testbed.proxy.url(URL_LOGIN)]).await;
    let refused = broker.refusal("unknown.example.com/app", "").await;
    assert!(refused.contains(&format!("{address} does not connect to this host: it refuses")), "{refused}");

    let away = format!("http://{URL_LOGIN}@127.0.0.1:1");
    let broker = testbed.broker(&["--upstream-proxy", &away]).await;
    let refused = broker.refusal(&name, "").await;
    assert!(
        refused.contains("the upstream proxy 127.0.0.1:1 cannot be reached: ")
            && refused.contains("FLOTILLA_BROKER_UPSTREAM_PROXY"),
        "{refused}"
    );
    check_hidden(&refused);
}

/// The session's proxy of sandboxes, which reaches pypi.org through an upstream proxy.
fn session(url: &str) -> Arc<Proxy> {
    let list = AllowList::parse("network.allow", &["pypi.org".to_owned()], &[]).unwrap();
    let upstream = outside::proxy::UpstreamProxy::parse(url, vec![]).unwrap();
    let names = Names::new(vec![], BTreeMap::new()).through(Some(Arc::new(upstream)));
    let tenant = "00000000-0000-0000-0000-000000000001".parse().unwrap();
    Arc::new(Proxy::new(tenant, AllowLists::new(vec![list]), Arc::new(names), QUOTA_BYTES))
}

#[tokio::test]
async fn tunnels_of_sandboxes_go_through_the_proxy() {
    let upstream = UpstreamProxy::start(LOGIN, &[("pypi.org", echo().await)]).await;
    let session = session(&upstream.url(URL_LOGIN));
    assert_eq!(check_tunnel(&session).await.1.refusal, None);

    let plain = b"GET http://pypi.org/simple/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n";
    let (answer, access) = exchange(&session, plain).await;
    assert_eq!(answer, "GET /simple/ HTTP/1.1\r\nHost: pypi.org\r\nConnection: close\r\n\r\n");
    assert_eq!(access.refusal, None);

    let want = ["CONNECT pypi.org:443", "GET http://pypi.org/simple/"];
    assert_eq!(upstream.requests(), want);
    let (_, access) = exchange(&session, b"CONNECT evil.com:443 HTTP/1.1\r\n\r\n").await;
    assert_eq!(access.refusal.unwrap().code().as_str(), "egress_host_not_allowed");
    assert_eq!(upstream.requests(), want, "only hosts of the lists");
}

#[tokio::test]
async fn a_tunnel_that_the_proxy_does_not_open_is_refused_with_words() {
    let upstream = UpstreamProxy::start(LOGIN, &[]).await;
    let requests: [&[u8]; 2] = [
        b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n",
        b"GET http://pypi.org/simple/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
    ];
    let wrong = session(&upstream.url(WRONG_LOGIN));
    let away = session(&format!("http://{URL_LOGIN}@127.0.0.1:1"));
    for (session, want) in
        [(&wrong, "refuses the login of the broker (407)"), (&away, "127.0.0.1:1 cannot be reached: ")]
    {
        for request in requests {
            let (answer, access) = exchange(session, request).await;
            assert!(
                answer.starts_with("HTTP/1.1 502 Bad Gateway\r\nx-flotilla-code: egress_upstream_failed\r\n"),
                "{answer}"
            );
            assert!(answer.contains(want), "{answer}");
            check_hidden(&answer);
            assert_eq!(access.refusal.unwrap().code().as_str(), "egress_upstream_failed");
        }
    }
    let unknown = session(&upstream.url(URL_LOGIN));
    let (answer, _) = exchange(&unknown, requests[0]).await;
    assert!(answer.contains("does not connect to this host: it answers 502"), "{answer}");
}

/// Opens the door of the session for a page host, and for repositories with the secret `TOKEN`.
async fn open(broker: &Broker) {
    let list =
        v1::AllowList { setting: "a setting".to_owned(), entries: vec![PAGE_HOST.to_owned()], ask: vec![] };
    let credential =
        v1::GitCredential { url_prefix: format!("https://{GIT_HOST}/acme/"), secret: "TOKEN".to_owned() };
    let request = v1::OpenEgressRequest {
        tenant_id: broker.tenants[0].to_string(),
        session_id: SESSION.to_owned(),
        lists: vec![list],
        project_id: broker.project.to_string(),
        git_credentials: vec![credential],
        ..Default::default()
    };
    broker.client.clone().open_egress(request).await.unwrap();
}

/// A private repository at a host whose name the proxy alone knows, and the directory of a broker.
struct GitTestbed {
    server: GitServer,
    proxy: UpstreamProxy,
    directory: TempDir,
}

impl GitTestbed {
    async fn start() -> Self {
        let server = GitServer::start(&[GIT_HOST, STORE_HOST]).await;
        server.push(REPOSITORY, &repository(&[("file", "private\n")]));
        server.require("x-access-token:token-4711");
        let hosts = [GIT_HOST, STORE_HOST].map(|host| (host, server.address));
        let proxy = UpstreamProxy::start(LOGIN, &hosts).await;
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), &server.certificate).unwrap();
        Self { server, proxy, directory }
    }

    /// The arguments of its broker, which shows this login to the proxy.
    fn arguments(&self, login: &str) -> [String; 6] {
        let [egress, ca] = ["egress", "ca.pem"].map(|name| self.directory.path().join(name));
        let (egress, ca) = (egress.display().to_string(), ca.display().to_string());
        let [own, git_ca, upstream] = ["--egress", "--git-ca", "--upstream-proxy"].map(str::to_owned);
        [own, egress, git_ca, ca, upstream, self.proxy.url(login)]
    }

    /// A broker with an open door.
    async fn broker(&self) -> Broker {
        let broker = Broker::start(&self.arguments(URL_LOGIN).each_ref().map(String::as_str)).await;
        broker.put_secret(None, "TOKEN", "token-4711").await;
        open(&broker).await;
        broker
    }

    /// Gives the broker a login that the proxy does not take.
    async fn spoil(&self, broker: &mut Broker) {
        broker.restart(&self.arguments(WRONG_LOGIN).each_ref().map(String::as_str)).await;
    }

    /// The answer at the door of the session. `target` stands behind the path of the repository.
    async fn ask(&self, broker: &Broker, target: &str) -> String {
        let tenant = broker.tenants[0].to_string();
        let door = self.directory.path().join("egress").join(tenant).join(SESSION).join("door");
        git::ask(&door, &format!("GET /{GIT_HOST}/{REPOSITORY}/{target}"), "").await
    }
}

/// Fails unless an answer of the door says that the proxy refuses the login.
fn check_refused(answer: &str) {
    assert!(
        answer.contains("x-flotilla-code: git_unreachable\r\n")
            && answer.contains("refuses the login of the broker (407)"),
        "{answer}"
    );
    check_hidden(answer);
}

#[tokio::test]
async fn repositories_are_read_through_the_proxy_and_hosts_of_the_operator_are_not() {
    let testbed = GitTestbed::start().await;
    let (server, proxy) = (&testbed.server, &testbed.proxy);
    let mut broker = testbed.broker().await;
    let target = "info/refs?service=git-upload-pack";
    let answer = testbed.ask(&broker, target).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let want = [format!("CONNECT {GIT_HOST}:443")];
    assert_eq!((proxy.requests(), server.requests().len()), (want.to_vec(), 1));

    let (arguments, fixed) = (testbed.arguments(URL_LOGIN), format!("{GIT_HOST}={}", server.address));
    let arguments = arguments.each_ref().map(String::as_str);
    broker.restart(&[&arguments[..], &["--hosts", &fixed]].concat()).await;
    let answer = testbed.ask(&broker, target).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!((proxy.requests(), server.requests().len()), (want.to_vec(), 2));

    testbed.spoil(&mut broker).await;
    check_refused(&testbed.ask(&broker, target).await);
    check_hidden(&broker.log());
}

#[tokio::test]
async fn objects_of_git_lfs_are_read_through_the_proxy_also_from_a_store_of_their_own() {
    const CONTENT: &[u8] = b"the content of a large file\n";
    let testbed = GitTestbed::start().await;
    let pointer = testbed.server.store_lfs(REPOSITORY, CONTENT);
    let store = LfsStore { url: format!("https://{STORE_HOST}"), key: "key-0815-of-store".to_owned() };
    testbed.server.lead_lfs_to(store);
    let mut broker = testbed.broker().await;
    let oid = &pointer.split("sha256:").nth(1).unwrap()[..64];
    let target = format!("info/lfs/objects/{oid}?size={}", CONTENT.len());
    let answer = testbed.ask(&broker, &target).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("the content of a large file\n"),
        "{answer}"
    );
    let want = [GIT_HOST, STORE_HOST].map(|host| format!("CONNECT {host}:443"));
    assert_eq!(testbed.proxy.requests(), want);

    testbed.spoil(&mut broker).await;
    check_refused(&testbed.ask(&broker, &target).await);
    check_hidden(&broker.log());
}

/// Starts what a push needs, and the proxy on its way, for which the broker has this login.
async fn push_through_proxy(login: &str) -> (UpstreamProxy, push::testbed::Testbed) {
    let server = GitServer::start(&[GIT_HOST]).await;
    let proxy = UpstreamProxy::start(LOGIN, &[(GIT_HOST, server.address)]).await;
    let testbed = push::testbed::Testbed::on(server, &["--upstream-proxy", &proxy.url(login)]).await;
    (proxy, testbed)
}

#[tokio::test]
async fn pushes_go_through_the_proxy_with_their_objects_of_git_lfs() {
    let (proxy, testbed) = push_through_proxy(URL_LOGIN).await;
    testbed.server.store_lfs(REPOSITORY, b"known\n");
    let attributes = (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    let commit = testbed.commit(&testbed.base, &[attributes, ("large.bin", "a large file\n")]);
    let pushed = testbed.push(&commit).await.unwrap();
    assert_eq!(testbed.remote("agent/ses_a"), pushed.commit);
    let sent = testbed.server.requests().iter().filter(|request| request.method == "PUT").count();
    assert_eq!((sent, testbed.pushes()), (1, 1), "the object and the branch");
    let (requests, want) = (proxy.requests(), format!("CONNECT {GIT_HOST}:443"));
    assert!(!requests.is_empty() && requests.iter().all(|request| *request == want), "{requests:?}");
    check_hidden(&testbed.broker.log());
}

#[tokio::test]
async fn a_push_that_the_proxy_refuses_says_so_and_moves_no_branch() {
    let (_proxy, testbed) = push_through_proxy(WRONG_LOGIN).await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let status = testbed.push(&commit).await.unwrap_err();
    assert_eq!(push::testbed::code(&status), "push_unreachable", "{status:?}");
    assert!(status.message().contains("refuses the login of the broker (407)"), "{status:?}");
    check_hidden(&format!("{status:?}"));
    check_hidden(&testbed.broker.log());
    assert_eq!((testbed.server.requests(), testbed.pushes()), (vec![], 0));
}

/// Reads a page without TLS, and gives its bytes or the code and the text of the refusal.
async fn page(broker: &Broker, path: &str) -> Result<Vec<u8>, String> {
    let request = v1::ReadPageRequest {
        tenant_id: broker.tenants[0].to_string(),
        session_id: SESSION.to_owned(),
        url: format!("http://{PAGE_HOST}/{path}"),
        timeout_ms: 20_000,
    };
    let refused = |status: tonic::Status| crate::harness::refusal(&status);
    let mut parts = broker.client.clone().read_page(request).await.map_err(refused)?.into_inner();
    let mut body = vec![];
    while let Some(response) = parts.message().await.map_err(refused)? {
        if let Some(Part::Data(data)) = response.part {
            body.extend(data);
        }
    }
    Ok(body)
}

#[tokio::test]
async fn pages_are_read_through_the_proxy() {
    let site = Registry::start().await;
    let path = site.push_blob(b"hello");
    let proxy = UpstreamProxy::start(LOGIN, &[(PAGE_HOST, site.host.parse().unwrap())]).await;
    let directory = tempfile::tempdir().unwrap();
    let egress = directory.path().to_str().unwrap();
    let (url, wrong) = (proxy.url(URL_LOGIN), proxy.url(WRONG_LOGIN));
    let mut broker = Broker::start(&["--egress", egress, "--upstream-proxy", &url]).await;
    open(&broker).await;
    assert_eq!(page(&broker, &path).await, Ok(b"hello".to_vec()));
    assert_eq!(proxy.requests(), [format!("GET http://{PAGE_HOST}/{path}")]);
    broker.restart(&["--egress", egress, "--upstream-proxy", &wrong]).await;
    let refused = page(&broker, &path).await.unwrap_err();
    assert!(refused.starts_with("egress_upstream_failed: the upstream proxy "), "{refused}");
    check_hidden(&refused);
    check_hidden(&broker.log());
}

#[tokio::test]
async fn a_broker_with_a_wrong_url_of_the_proxy_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let (open, long) = (directory.path().join("open"), directory.path().join("long"));
    fs::write(&open, "http://proxy.acme.dev:3128").unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&long, "x".repeat(5_000)).unwrap();
    fs::set_permissions(&long, fs::Permissions::from_mode(0o600)).unwrap();
    let (open, long) = (open.to_str().unwrap(), long.to_str().unwrap());
    let wrong = format!("https://{URL_LOGIN}@proxy.acme.dev:3128");
    let proxy = ["--upstream-proxy", "http://proxy.acme.dev:3128"];
    for (arguments, want) in [
        (
            vec!["--upstream-proxy", &wrong],
            "use FLOTILLA_BROKER_UPSTREAM_PROXY: the URL does not begin with http://",
        ),
        (vec!["--upstream-proxy-file", "/nowhere"], "use FLOTILLA_BROKER_UPSTREAM_PROXY_FILE: open /nowhere"),
        (vec!["--upstream-proxy-file", open], "run chmod 600"),
        (vec!["--upstream-proxy-file", long], "has more than 4096 bytes"),
        ([&proxy[..], &["--upstream-proxy-file", open]].concat(), "and not both"),
    ] {
        let error = Broker::start_error(&arguments).await;
        assert!(error.contains(want), "{error}");
        check_hidden(&error);
    }
}
