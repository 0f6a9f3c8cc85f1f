//! TLS of the port, over real connections with certificates that the test makes.

use crate::harness::{TOKEN, code, config, directory};
use chassis::{
    Service,
    grpc::{self, tls},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rpc::{
    client::Bearer,
    v1::{GetIsolationRequest, sandbox_service_client::SandboxServiceClient},
};
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// The name in the certificate of the port.
const NAME: &str = "sandbox.test";

/// Writes a CA to `directory`, and the certificates that it signs.
struct Authority<'a> {
    directory: &'a Path,
    /// The file of its certificate.
    file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl<'a> Authority<'a> {
    fn new(directory: &'a Path, name: &str) -> Self {
        let (mut params, key) = (CertificateParams::new(vec![]).unwrap(), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let file = directory.join(format!("{name}.pem"));
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { directory, file, issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate for the port that is valid until the end of this year, and its key.
    fn sign(&self, name: &str, last_year: i32) -> [PathBuf; 2] {
        let (mut params, key) =
            (CertificateParams::new(vec![NAME.to_owned()]).unwrap(), KeyPair::generate().unwrap());
        params.not_after = rcgen::date_time_ymd(last_year, 12, 31);
        let files = ["certificate", "key"].map(|kind| self.directory.join(format!("{name}-{kind}.pem")));
        std::fs::write(&files[0], params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&files[1], key.serialize_pem()).unwrap();
        files
    }

    fn check(&self) -> tls::ServerCheck {
        tls::ServerCheck { ca: Some(self.file.clone()), server_name: Some(NAME.to_owned()) }
    }
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
        let fixed = ["--without", "users,terminals,cpu", "--listen", "0.0.0.0:0"];
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

async fn call(url: &str, check: &tls::ServerCheck, token: &str) -> Result<(), Status> {
    let (channel, token) = (grpc::channel_with(url, check).unwrap(), Bearer::new(token).unwrap());
    let mut client = SandboxServiceClient::with_interceptor(channel, token);
    client.get_isolation(GetIsolationRequest {}).await.map(drop)
}

#[tokio::test]
async fn the_port_has_tls_and_each_mistake_is_named() {
    let directory = directory();
    let ours = Authority::new(directory.path(), "ours");
    let [certificate, key] = ours.sign("port", 2099);
    let port = Port::start(directory.path(), [&certificate, &key]).await.unwrap();
    assert!(port.url.starts_with("https://"), "{}", port.url);
    port.call(&ours.check(), TOKEN).await.unwrap();
    assert_eq!(code(port.call(&ours.check(), "another token").await), "token_invalid");
    let other = Authority::new(directory.path(), "other").check();
    let unnamed = tls::ServerCheck { server_name: None, ..ours.check() };
    for (check, want) in [(&other, "FLOTILLA_SANDBOX_CA"), (&unnamed, "FLOTILLA_SANDBOX_SERVER_NAME")] {
        let text = tls::explain(&port.call(check, TOKEN).await.unwrap_err());
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
    let text = tls::explain(&port.call(&ours.check(), TOKEN).await.unwrap_err());
    assert!(text.contains("has expired"), "{text}");
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
    let text = tls::explain(&call(&url, &ours.check(), TOKEN).await.unwrap_err());
    assert!(text.contains("does not speak TLS"), "{text}");
    plain.await.unwrap();
}
