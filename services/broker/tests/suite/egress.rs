//! The proxy as programs in a sandbox use it, with real connections.

use broker::{
    egress::{
        access::Access,
        proxy::{Proxy, QUOTA_BYTES},
    },
    outside::names::Names,
};
use domain::egress::{
    allow::{AllowList, AllowLists},
    host::HostName,
};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    net::TcpListener,
};
use tokio_util::sync::CancellationToken;

/// A server that answers every connection with what it received first.
pub async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let count = stream.read(&mut buffer).await.unwrap();
                stream.write_all(&buffer[..count]).await.unwrap();
            });
        }
    });
    address
}

fn proxy(server: SocketAddr, quota: u64) -> Arc<Proxy> {
    let entries = ["pypi.org", "localtest.example.com", "unknown.invalid"].map(ToOwned::to_owned);
    let list = AllowList::parse("network.allow", &entries, &[]).unwrap();
    let fixed = BTreeMap::from([(HostName::parse("pypi.org").unwrap(), server)]);
    let tenant = "00000000-0000-0000-0000-000000000001".parse().unwrap();
    Arc::new(Proxy::new(tenant, AllowLists::new(vec![list]), Arc::new(Names::new(vec![], fixed)), quota))
}

/// A client, and the record of its connection.
pub fn connect(proxy: &Arc<Proxy>) -> (DuplexStream, tokio::task::JoinHandle<Access>) {
    let (client, server) = duplex(64 * 1024);
    let proxy = Arc::clone(proxy);
    (client, tokio::spawn(async move { proxy.serve(server, &CancellationToken::new()).await }))
}

pub async fn exchange(proxy: &Arc<Proxy>, request: &[u8]) -> (String, Access) {
    let (mut client, access) = connect(proxy);
    client.write_all(request).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = vec![];
    client.read_to_end(&mut answer).await.unwrap();
    (String::from_utf8_lossy(&answer).into_owned(), access.await.unwrap())
}

/// The first message of a real TLS client.
pub fn hello(host: &str) -> Vec<u8> {
    let roots = rustls::RootCertStore::empty();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let mut client =
        rustls::ClientConnection::new(config.into(), host.to_owned().try_into().unwrap()).unwrap();
    let mut bytes = vec![];
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Opens a tunnel to pypi.org, which answers with what it gets, and checks that it gets the bytes of the client. Returns how many, and what the broker notes.
pub async fn check_tunnel(proxy: &Arc<Proxy>) -> (u64, Access) {
    let (mut client, access) = connect(proxy);
    client.write_all(b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n").await.unwrap();
    let mut established = [0; 39];
    client.read_exact(&mut established).await.unwrap();
    assert_eq!(&established[..], b"HTTP/1.1 200 Connection established\r\n\r\n");
    let hello = hello("pypi.org");
    client.write_all(&hello).await.unwrap();
    let mut echoed = vec![];
    client.read_to_end(&mut echoed).await.unwrap();
    assert_eq!(echoed, hello, "the host gets the bytes of the client, unchanged");
    drop(client);
    (hello.len() as u64, access.await.unwrap())
}

#[tokio::test]
async fn a_tunnel_carries_what_the_client_and_the_host_say() {
    let (sent, access) = check_tunnel(&proxy(echo().await, QUOTA_BYTES)).await;
    assert_eq!((access.bytes, access.refusal), (2 * sent, None));
    assert_eq!(access.host, Some(HostName::parse("pypi.org").unwrap()));
}

#[tokio::test]
async fn a_plain_request_is_forwarded_alone() {
    let proxy = proxy(echo().await, QUOTA_BYTES);
    let request =
        b"GET http://pypi.org/simple/ HTTP/1.1\r\nHost: pypi.org\r\nProxy-Authorization: secret\r\n\r\n\
        GET http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n";
    let (answer, access) = exchange(&proxy, request).await;
    // The second request was not checked, and does not go to the host of the first one.
    assert_eq!(answer, "GET /simple/ HTTP/1.1\r\nHost: pypi.org\r\nConnection: close\r\n\r\n");
    assert_eq!(access.refusal, None);
}

#[tokio::test]
async fn refusals_say_the_host_the_setting_and_the_code() {
    let proxy = proxy(echo().await, QUOTA_BYTES);
    let (answer, access) = exchange(&proxy, b"CONNECT evil.com:443 HTTP/1.1\r\n\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.1 403 Forbidden\r\nx-flotilla-code: egress_host_not_allowed\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\nevil.com is not allowed: network.allow does not list it; add it, or a preset that contains it\n"));
    assert_eq!(access.refusal.unwrap().code().as_str(), "egress_host_not_allowed");
    for (request, code) in [
        ("CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n", "egress_host_invalid"),
        ("CONNECT pypi.org:22 HTTP/1.1\r\n\r\n", "egress_port_refused"),
        ("POST http://pypi.org/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n", "egress_method_refused"),
        ("CONNECT unknown.invalid:443 HTTP/1.1\r\n\r\n", "egress_host_unknown"),
        ("nonsense", "egress_request_invalid"),
    ] {
        let (answer, access) = exchange(&proxy, request.as_bytes()).await;
        assert!(answer.contains(&format!("\r\nx-flotilla-code: {code}\r\n")), "{request:?}: {answer}");
        assert_eq!(access.refusal.unwrap().code().as_str(), code);
    }
}

#[tokio::test]
async fn a_tunnel_for_another_host_reaches_nobody() {
    let proxy = proxy(echo().await, QUOTA_BYTES);
    for first in [hello("evil.com"), b"SSH-2.0-client\r\n".to_vec(), vec![]] {
        let (answer, access) =
            exchange(&proxy, &[&b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n"[..], &first].concat()).await;
        assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\n");
        assert_eq!((access.bytes, access.refusal.unwrap().code().as_str()), (0, "egress_tls_invalid"));
    }
}

#[tokio::test]
async fn a_session_transfers_no_more_than_its_quota() {
    let proxy = proxy(echo().await, 200);
    let request = b"GET http://pypi.org/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n";
    let (first, _) = exchange(&proxy, request).await;
    assert!(first.starts_with("GET / HTTP/1.1"), "{first}");
    let (_, cut) = exchange(&proxy, request).await;
    assert_eq!(cut.refusal.unwrap().code().as_str(), "egress_quota_used_up");
    let (told, refused) = exchange(&proxy, request).await;
    assert!(told.starts_with("HTTP/1.1 403") && told.contains("egress_quota_used_up"), "{told}");
    assert_eq!(refused.refusal.unwrap().code().as_str(), "egress_quota_used_up");
}

#[tokio::test]
async fn a_connection_that_is_cut_at_the_end_of_the_broker_is_recorded() {
    let proxy = proxy(echo().await, QUOTA_BYTES);
    let (mut client, server) = duplex(64 * 1024);
    let closing = CancellationToken::new();
    let (own, stop) = (Arc::clone(&proxy), closing.clone());
    let access = tokio::spawn(async move { own.serve(server, &stop).await });
    client.write_all(b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n").await.unwrap();
    client.read_exact(&mut [0; 39]).await.unwrap();
    closing.cancel();
    let access = access.await.unwrap();
    assert_eq!(access.host, Some(HostName::parse("pypi.org").unwrap()));
    assert_eq!(access.refusal.unwrap().code().as_str(), "egress_closed");
}
