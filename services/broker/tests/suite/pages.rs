//! Pages of the web: read under the rules of a door, host by host, and bounded.

use crate::harness::Broker;
use rpc::v1::{self, read_page_response::Part};
use std::{net::SocketAddr, time::Duration};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tonic::Status;

const HOST: &str = "pages.example.com";
const OTHER: &str = "other.example.com";
/// The longest page, as the call says.
const BYTES_MAX: usize = 5 * 1024 * 1024;

/// A site of the web. It answers each path in its own way.
async fn site() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = vec![0; 4096];
                let count = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..count]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                if path == "/slow" {
                    return std::future::pending().await;
                }
                // A client that refuses the answer closes the connection.
                drop(stream.write_all(&answer(&path)).await);
            });
        }
    });
    address
}

fn answer(path: &str) -> Vec<u8> {
    let redirect =
        |to: &str| format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes();
    let page = |length: usize, body: &str| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; charset=utf-8\r\nContent-Length: {length}\r\n\r\n"
        );
        [head.as_bytes(), body.as_bytes()].concat()
    };
    match path {
        "/once" => redirect("/"),
        "/round" => redirect("/round"),
        "/private" => redirect("http://10.0.0.1/"),
        "/other" => redirect("http://other.example.com/"),
        "/port" => redirect("http://pages.example.com:6379/"),
        "/file" => redirect("file:///etc/passwd"),
        "/missing" => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
        "/longest" => page(BYTES_MAX, &"x".repeat(BYTES_MAX)),
        "/long" => page(BYTES_MAX + 1, &"x".repeat(BYTES_MAX + 1)),
        "/cut" => page(100, "a part"),
        _ => page(8, "<p>hello"),
    }
}

struct Testbed {
    broker: Broker,
    _directory: TempDir,
}

impl Testbed {
    async fn start() -> Self {
        let (directory, site) = (tempfile::tempdir().unwrap(), site().await);
        let egress = directory.path().join("egress");
        let [host, other] = [HOST, OTHER].map(|host| format!("{host}={site}"));
        let arguments = ["--egress", egress.to_str().unwrap(), "--hosts", &host, "--hosts", &other];
        Self { broker: Broker::start(&arguments).await, _directory: directory }
    }

    /// Opens the door of a session for these hosts; `None`: without a list.
    async fn open(&self, hosts: Option<&[&str]>) {
        let list = hosts.map(|hosts| v1::AllowList {
            setting: "a setting".to_owned(),
            entries: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ask: vec![],
        });
        let request = v1::OpenEgressRequest {
            tenant_id: self.broker.tenants[0].to_string(),
            session_id: "ses_a".to_owned(),
            lists: list.into_iter().collect(),
            ..Default::default()
        };
        self.broker.client.clone().open_egress(request).await.unwrap();
    }

    async fn read_as(
        &self,
        tenant: usize,
        url: &str,
        time: Duration,
    ) -> Result<(v1::PageHead, Vec<u8>), Status> {
        let request = v1::ReadPageRequest {
            tenant_id: self.broker.tenants[tenant].to_string(),
            session_id: "ses_a".to_owned(),
            url: url.to_owned(),
            timeout_ms: u32::try_from(time.as_millis()).unwrap(),
        };
        let mut parts = self.broker.client.clone().read_page(request).await?.into_inner();
        let Some(Part::Head(head)) = parts.message().await?.unwrap().part else { panic!("no head") };
        let mut body = vec![];
        while let Some(response) = parts.message().await? {
            let Some(Part::Data(data)) = response.part else { panic!("a second head") };
            assert!(data.len() <= rpc::CHUNK_BYTES);
            body.extend(data);
        }
        Ok((head, body))
    }

    async fn read(&self, path: &str) -> Result<(v1::PageHead, Vec<u8>), Status> {
        self.read_as(0, &format!("http://{HOST}{path}"), Duration::from_secs(20)).await
    }

    async fn code(&self, path: &str) -> String {
        code(self.read(path).await)
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Status>) -> String {
    rpc::status::code_of(&result.unwrap_err()).unwrap_or_default()
}

#[tokio::test]
async fn each_host_of_a_page_passes_the_rules_of_the_door() {
    let testbed = Testbed::start().await;
    assert_eq!(testbed.code("/").await, "egress_unavailable", "the door is closed");
    testbed.open(Some(&[HOST, OTHER])).await;
    let (head, body) = testbed.read("/once").await.unwrap();
    assert_eq!((head.url.as_str(), head.media_type.as_str()), ("http://pages.example.com/", "text/html"));
    assert_eq!(body, b"<p>hello");
    assert_eq!(testbed.read("/other").await.unwrap().0.url, "http://other.example.com/");
    for (path, want) in [
        ("/round", "page_redirects"),
        ("/private", "egress_host_invalid"),
        ("/port", "egress_port_refused"),
        ("/file", "page_address_invalid"),
        ("/missing", "page_status"),
    ] {
        assert_eq!(testbed.code(path).await, want, "{path}");
    }
    // Another tenant has no such door.
    let other = testbed.read_as(1, "http://pages.example.com/", Duration::from_secs(20)).await;
    assert_eq!(code(other), "egress_unavailable");

    testbed.open(Some(&[HOST])).await;
    assert_eq!(testbed.read("/").await.unwrap().1, b"<p>hello");
    let refused = testbed.read("/other").await.unwrap_err();
    let want = "other.example.com is not allowed: a setting does not list it";
    assert!(refused.message().contains(want), "{refused}");
    testbed.open(Some(&[])).await;
    assert_eq!(testbed.code("/").await, "egress_host_not_allowed", "an empty list forbids everything");
    testbed.open(None).await;
    assert_eq!(testbed.code("/").await, "egress_address_private", "the operator's hosts take a list");
    let log = testbed.broker.log();
    for line in [r#""host":"other.example.com""#, r#""error.code":"egress_host_not_allowed""#] {
        assert!(log.contains(line), "{line}");
    }
}

#[tokio::test]
async fn addresses_outside_the_public_web_are_refused() {
    let testbed = Testbed::start().await;
    testbed.open(None).await;
    for (url, want) in [
        ("file:///etc/passwd", "page_address_invalid"),
        ("ftp://example.com/", "page_address_invalid"),
        ("https://user:word@pages.example.com/", "page_address_invalid"),
        ("nonsense", "page_address_invalid"),
        ("http://127.0.0.1/", "egress_host_invalid"),
        ("http://[::1]/", "egress_host_invalid"),
        ("http://2130706433/", "egress_host_invalid"),
        ("http://0x7f.1/", "egress_host_invalid"),
        ("http://localhost/", "egress_host_invalid"),
        ("http://169.254.169.254/latest/meta-data", "egress_host_invalid"),
        ("http://1.1.1.1:6379/", "egress_host_invalid"),
        ("http://pages.example.com:22/", "egress_port_refused"),
        ("http://pages.example.com/", "egress_address_private"),
    ] {
        let read = testbed.read_as(0, url, Duration::from_secs(20)).await;
        assert_eq!(code(read), want, "{url}");
    }
}

#[tokio::test]
async fn long_slow_and_broken_pages_are_bounded() {
    let testbed = Testbed::start().await;
    testbed.open(Some(&[HOST])).await;
    assert_eq!(testbed.read("/longest").await.unwrap().1.len(), BYTES_MAX);
    assert_eq!(testbed.code("/long").await, "page_too_large");
    assert_eq!(testbed.code("/cut").await, "page_unreachable");
    let slow = testbed.read_as(0, "http://pages.example.com/slow", Duration::from_millis(50)).await;
    assert_eq!(code(slow), "page_timeout");
}
