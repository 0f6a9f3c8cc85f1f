//! TLS of the port, over real connections with certificates that the test makes.

use crate::harness::{TOKEN, code, config, directory, missing_walls};
use chassis::{
    Service,
    grpc::{self, tls},
};
use rpc::{
    client::Bearer,
    v1::{GetIsolationRequest, sandbox_service_client::SandboxServiceClient},
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use testkit::tls::authority::{Authority, PORT_NAME};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Status, service::interceptor::InterceptedService, transport::Channel};

type Client = SandboxServiceClient<InterceptedService<Channel, Bearer>>;

fn check(authority: &Authority) -> tls::ServerCheck {
    tls::ServerCheck { ca: Some(authority.file.clone()), server_name: Some(PORT_NAME.to_owned()) }
}

/// A service that others than this machine can reach.
struct Port {
    url: String,
    shutdown: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Port {
    async fn start(directory: &Path, [certificate, key]: [&Path; 2]) -> anyhow::Result<Self> {
        let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
        let files = ["--tls-certificate", files[0], "--tls-key", files[1]];
        let fixed = ["--without", missing_walls(), "--listen", "0.0.0.0:0"];
        let config = config(directory, &[&fixed[..], &files].concat());
        let (service, mut ready) = Service::in_process();
        let shutdown = service.shutdown.clone();
        let running = tokio::spawn(sandbox::run(config, service));
        let Ok(ready) = ready.recv().await else { return Err(running.await.unwrap().unwrap_err()) };
        Ok(Self { url: ready.url.replace("0.0.0.0", "127.0.0.1"), shutdown, running })
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }

    async fn call(&self, check: &tls::ServerCheck, token: &str) -> Result<(), Status> {
        call(&self.url, check, token).await
    }
}

/// A client with a connection of its own.
fn client(url: &str, check: &tls::ServerCheck, token: &str) -> Client {
    let (channel, token) = (grpc::channel_with(url, check).unwrap(), Bearer::new(token).unwrap());
    SandboxServiceClient::with_interceptor(channel, token)
}

async fn call(url: &str, check: &tls::ServerCheck, token: &str) -> Result<(), Status> {
    client(url, check, token).get_isolation(GetIsolationRequest {}).await.map(drop)
}

#[tokio::test]
async fn the_port_has_tls_and_each_mistake_is_named() {
    let directory = directory();
    let ours = Authority::new(directory.path(), "ours");
    let [certificate, key] = ours.sign("port", 2099);
    let port = Port::start(directory.path(), [&certificate, &key]).await.unwrap();
    assert!(port.url.starts_with("https://"), "{}", port.url);
    port.call(&check(&ours), TOKEN).await.unwrap();
    assert_eq!(code(port.call(&check(&ours), "another token").await), "token_invalid");
    let other = check(&Authority::new(directory.path(), "other"));
    let unnamed = tls::ServerCheck { server_name: None, ..check(&ours) };
    for (wrong, want) in [(&other, "FLOTILLA_SANDBOX_CA"), (&unnamed, "FLOTILLA_SANDBOX_SERVER_NAME")] {
        let text = tls::explain(&port.call(wrong, TOKEN).await.unwrap_err());
        assert!(text.contains(want), "{want}: {text}");
    }
    let plain = port.url.replace("https://", "http://");
    assert!(
        call(&plain, &tls::ServerCheck::default(), TOKEN).await.is_err(),
        "nothing travels in plain text"
    );
    port.stop().await;

    let [expired, its_key] = ours.sign("expired", 2020);
    let port = Port::start(directory.path(), [&expired, &its_key]).await.unwrap();
    let text = tls::explain(&port.call(&check(&ours), TOKEN).await.unwrap_err());
    assert!(text.contains("has expired"), "{text}");
    port.stop().await;
}

#[tokio::test]
async fn the_next_connection_has_the_certificate_that_the_files_have_then() {
    let directory = directory();
    let authorities = ["ours", "next", "third"].map(|name| Authority::new(directory.path(), name));
    let [ours, next, third] = authorities.each_ref().map(check);
    let files = authorities[0].sign("port", 2099);
    let [certificate, key] = &files;
    let port = Port::start(directory.path(), [certificate, key]).await.unwrap();
    let mut kept = client(&port.url, &ours, TOKEN);
    kept.get_isolation(GetIsolationRequest {}).await.unwrap();

    assert_eq!(authorities[1].sign("port", 2099), files, "the same files");
    port.call(&next, TOKEN).await.unwrap();
    port.call(&ours, TOKEN).await.expect_err("the port no longer shows the first certificate");
    kept.get_isolation(GetIsolationRequest {}).await.expect("an open connection stays");

    // Neither half a file, nor a key of another certificate, nor no key ends the service.
    fs::write(certificate, "-----BEGIN CERT").unwrap();
    port.call(&next, TOKEN).await.unwrap();
    let [replaced, its_key] = authorities[2].sign("replaced", 2099);
    fs::rename(replaced, certificate).unwrap();
    port.call(&next, TOKEN).await.unwrap();
    fs::remove_file(key).unwrap();
    port.call(&next, TOKEN).await.unwrap();
    fs::rename(its_key, key).unwrap();
    port.call(&third, TOKEN).await.unwrap();
    port.stop().await;
}

#[tokio::test]
async fn the_next_connection_trusts_the_ca_that_the_file_has_then() {
    let directory = directory();
    let [ours, next] = ["ours", "next"].map(|name| Authority::new(directory.path(), name));
    let [certificate, key] = ours.sign("port", 2099);
    let port = Port::start(directory.path(), [&certificate, &key]).await.unwrap();
    // Each of them connects at its first call.
    let [mut first, mut second, mut late] = [(); 3].map(|()| client(&port.url, &check(&ours), TOKEN));
    first.get_isolation(GetIsolationRequest {}).await.unwrap();

    next.sign("port", 2099);
    fs::rename(&next.file, &ours.file).unwrap();
    second.get_isolation(GetIsolationRequest {}).await.unwrap();
    first.get_isolation(GetIsolationRequest {}).await.expect("an open connection stays");

    // Half a file takes no CA away.
    let mut third = client(&port.url, &check(&ours), TOKEN);
    let authority = fs::read(&ours.file).unwrap();
    fs::write(&ours.file, "-----BEGIN CERT").unwrap();
    third.get_isolation(GetIsolationRequest {}).await.unwrap();

    fs::write(&ours.file, authority).unwrap();
    for (replaced, file) in ours.sign("replaced", 2099).iter().zip([&certificate, &key]) {
        fs::rename(replaced, file).unwrap();
    }
    let text = tls::explain(&late.get_isolation(GetIsolationRequest {}).await.unwrap_err());
    assert!(text.contains("is not from a CA that this process trusts"), "the CA that the file had: {text}");
    port.stop().await;
}

#[tokio::test]
async fn certificates_that_cannot_be_used_stop_the_start() {
    let directory = directory();
    let ours = Authority::new(directory.path(), "ours");
    let ([certificate, key], [_, other_key]) = (ours.sign("port", 2099), ours.sign("other", 2099));
    let missing = directory.path().join("missing.pem");
    for (files, want) in [
        ([&missing, &key], "read the TLS file".to_owned()),
        ([&certificate, &missing], format!("read the TLS file {}", missing.display())),
        ([&key, &key], format!("{} has no certificate in the format PEM", key.display())),
        ([&certificate, &certificate], format!("{} has no private key", certificate.display())),
        ([&certificate, &other_key], "use the certificate".to_owned()),
    ] {
        let error = Port::start(directory.path(), files.map(PathBuf::as_path)).await.err().expect("no start");
        assert!(format!("{error:#}").contains(&want), "{want}: {error:#}");
    }
    let of = |ca: &Path| tls::ServerCheck { ca: Some(ca.to_owned()), server_name: None };
    for (url, ca, want) in [
        ("https://127.0.0.1:1", &missing, "read the TLS file"),
        ("https://127.0.0.1:1", &key, "has no certificate"),
        ("http://127.0.0.1:1", &ours.file, "is no https:// address"),
    ] {
        let error = grpc::channel_with(url, &of(ca)).unwrap_err().to_string();
        assert!(error.contains(want), "{want}: {error}");
    }
    let half = config(directory.path(), &["--tls-key", key.to_str().unwrap()]);
    assert!(half.check().1.join("\n").contains("belong together"), "{:?}", half.check().1);
}

#[tokio::test]
async fn a_port_without_tls_is_not_taken_for_one_with_tls() {
    let directory = directory();
    let ours = Authority::new(directory.path(), "ours");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let plain = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let text = tls::explain(&call(&url, &check(&ours), TOKEN).await.unwrap_err());
    assert!(text.contains("does not speak TLS"), "{text}");
    plain.await.unwrap();
}
