//! TLS of the port. Further mistakes are tests of the sandbox: both ports are made by the same code.

use crate::harness::{Broker, client};
use chassis::grpc::{ServerCheck, tls};
use rpc::v1::PutSecretRequest;
use testkit::tls::authority::{Authority, PORT_NAME};

/// Why a call gets no answer from the broker.
async fn failure(url: &str, check: &ServerCheck) -> String {
    let status = client(url, check).put_secret(PutSecretRequest::default()).await.unwrap_err();
    assert_eq!(rpc::status::code_of(&status), None, "the broker got the call: {status}");
    tls::explain(&status)
}

#[tokio::test]
async fn the_port_has_tls_and_takes_a_certificate_that_replaces_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let authorities = ["ours", "next"].map(|name| Authority::new(directory.path(), name));
    let [ours, next] = authorities.each_ref().map(|authority| ServerCheck {
        ca: Some(authority.file.clone()),
        server_name: Some(PORT_NAME.to_owned()),
    });
    let files = authorities[0].sign("port", 2099);
    let [certificate, key] = files.each_ref().map(|file| file.to_str().unwrap());
    let mut broker =
        Broker::start_checked(&["--tls-certificate", certificate, "--tls-key", key], &ours).await;
    assert!(broker.url.starts_with("https://"), "{}", broker.url);
    broker.put_secret(None, "FIRST", "value").await;
    let text = failure(&broker.url, &next).await;
    assert!(text.contains("is not from a CA that this process trusts"), "{text}");
    failure(&broker.url.replace("https://", "http://"), &ServerCheck::default()).await;

    authorities[1].sign("port", 2099);
    broker.client = client(&broker.url, &next);
    broker.put_secret(None, "SECOND", "value").await;
    failure(&broker.url, &ours).await;
}
