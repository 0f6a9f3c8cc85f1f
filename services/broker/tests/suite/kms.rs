//! A broker whose key is in a key service, as the command line configures it.

use crate::harness::{Broker, refusal};
use rpc::v1;
use std::{fs, os::unix::fs::PermissionsExt as _};
use tempfile::TempDir;
use testkit::{
    registry::{Registry, rules::Login},
    transit::{KEY, TransitServer},
};

const TOKEN: &str = "hvs.token-4711";
const VALUE: &str = "ann:hunter2";

/// The arguments for a key service, and the directory with their files.
fn arguments(server: &TransitServer) -> (TempDir, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let (token, url) = (file("token", TOKEN), server.url.clone());
    let mut arguments = ["--kms", "vault", "--kms-key", KEY].map(ToOwned::to_owned).to_vec();
    arguments.extend(["--kms-url".to_owned(), url, "--kms-token-file".to_owned(), token]);
    if let Some(certificate) = &server.certificate {
        arguments.extend(["--kms-ca".to_owned(), file("ca.pem", certificate)]);
    }
    (directory, arguments)
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// The operations of the lines that tell operators of a failure of the key service. Each has the key and the reason.
fn failures(log: &str) -> Vec<String> {
    let lines =
        log.lines().filter(|line| line.contains(r#""level":"WARN""#) || line.contains(r#""level":"ERROR""#));
    let lines = lines.filter(|line| line.contains("kms_") || line.contains("key service"));
    let operation = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["fields"]["message"].as_str().unwrap().ends_with("it answered 503"), "{line}");
        assert_eq!(line["fields"]["key.id"], format!("transit:{KEY}"));
        line["fields"]["operation"].as_str().unwrap().to_owned()
    };
    lines.map(operation).collect()
}

#[tokio::test]
async fn secrets_are_sealed_and_used_by_a_key_service_and_nothing_tells_them() {
    let (server, registry) = (TransitServer::start_with_tls(TOKEN).await, Registry::start().await);
    let image = registry.push_image("app", &[b"layer"]);
    registry.require(Login::Basic(VALUE.to_owned()));
    let (_directory, mut arguments) = arguments(&server);
    arguments.extend(["--registry-plaintext".to_owned(), registry.host.clone()]);
    let broker = Broker::start(&words(&arguments)).await;
    broker.put_secret(None, "LOGIN", VALUE).await;
    broker.resolve(&image.name, "LOGIN").await.unwrap();
    // The first three are the check of the start.
    assert_eq!(server.operations(), ["encrypt", "decrypt", "decrypt", "encrypt", "decrypt"]);

    server.fail(503, &format!("Vault is sealed {TOKEN}"));
    let away = broker.refusal(&image.name, "LOGIN").await;
    assert_eq!(away, "kms_unavailable: the key service of the broker is not available");
    let request = v1::PutSecretRequest {
        tenant_id: broker.tenants[0].to_string(),
        project_id: String::new(),
        name: "LOGIN".to_owned(),
        value: b"hunter3".to_vec(),
        actor: "ann".to_owned(),
        actor_key: String::new(),
        urls: vec![],
    };
    let status = broker.client.clone().put_secret(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(refusal(&status).starts_with("kms_unavailable: "), "{status}");
    server.heal();
    broker.resolve(&image.name, "LOGIN").await.unwrap();

    let log = broker.log();
    assert!(log.contains("a secret was used"), "the log is complete");
    assert_eq!(failures(&log), ["decrypt", "encrypt"], "each failure has one line");
    for secret in
        [TOKEN, "hunter2", "hunter3"].into_iter().chain(server.plaintexts().iter().map(String::as_str))
    {
        assert!(!log.contains(secret), "the log has {secret}");
    }
}

#[tokio::test]
async fn a_broker_starts_without_its_key_service_and_not_with_a_wrong_token() {
    let server = TransitServer::start(TOKEN).await;
    let (directory, arguments) = arguments(&server);
    server.set_token("another");
    let error = Broker::start_error(&words(&arguments)).await;
    assert!(error.contains("(403)") && !error.contains(TOKEN), "{error}");
    server.set_token(TOKEN);
    server.fail(503, "Vault is sealed");
    let error = Broker::start_error(&words(&arguments)).await;
    assert!(error.contains("is not available: it answered 503"), "its key is not noted: {error}");
    server.heal();
    let token = directory.path().join("token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(Broker::start_error(&words(&arguments)).await.contains("chmod 600"));
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let mut broker = Broker::start(&words(&arguments)).await;
    assert!(broker.log().contains("the key transit:flotilla seals secrets"), "operators see the keys");
    server.fail(503, "Vault is sealed");
    broker.restart(&words(&arguments)).await;
    assert!(broker.log().contains("cannot be checked at this moment"), "operators see it");
    server.heal();
    broker.put_secret(None, "LOGIN", VALUE).await;
}

#[tokio::test]
async fn a_missing_key_file_is_made_only_if_it_is_the_only_key() {
    let directory = tempfile::tempdir().unwrap();
    let further = directory.path().join("further");
    fs::write(&further, [1; 32]).unwrap();
    fs::set_permissions(&further, fs::Permissions::from_mode(0o600)).unwrap();
    let error = Broker::start_error(&["--further-key-files", further.to_str().unwrap()]).await;
    assert!(error.contains("cannot read or write the key file"), "{error}");

    let server = TransitServer::start(TOKEN).await;
    let (_directory, arguments) = arguments(&server);
    let missing = directory.path().join("missing").display().to_string();
    // Without `--kms vault`, the key service only opens.
    for settings in [&arguments[2..], &arguments[..]] {
        let settings = [words(settings), vec!["--key-file", &missing]].concat();
        let error = Broker::start_error(&settings).await;
        assert!(error.contains("cannot read or write the key file"), "{error}");
    }
}

#[tokio::test]
async fn a_broker_that_pushes_starts_before_an_agent_has_written_its_token() {
    let server = TransitServer::start(TOKEN).await;
    let (directory, mut arguments) = arguments(&server);
    arguments.extend(["--push".to_owned(), directory.path().join("push").display().to_string()]);
    let mut broker = Broker::start(&words(&arguments)).await;
    let [token, written] = ["token", "written"].map(|name| directory.path().join(name));
    fs::rename(&token, &written).unwrap();
    broker.restart(&words(&arguments)).await;
    assert!(broker.log().contains("cannot read the file with its token"), "operators see it");
    fs::rename(&written, &token).unwrap();
    broker.put_secret(None, "LOGIN", VALUE).await;
}

#[tokio::test]
async fn what_the_file_sealed_is_sealed_again_in_the_background() {
    let (server, registry) = (TransitServer::start(TOKEN).await, Registry::start().await);
    let image = registry.push_image("app", &[b"layer"]);
    registry.require(Login::Basic(VALUE.to_owned()));
    let (_directory, mut arguments) = arguments(&server);
    let mut broker = Broker::start(&[]).await;
    broker.put_secret(None, "LOGIN", VALUE).await;
    arguments.extend(["--registry-plaintext".to_owned(), registry.host.clone()]);
    broker.restart(&words(&arguments)).await;
    let is_done = async || broker.log().contains("no secret needs the keys");
    testkit::eventually("no secret needs the file", is_done).await;
    let before = server.operations();
    broker.resolve(&image.name, "LOGIN").await.unwrap();
    assert_eq!(server.operations(), [before, vec!["decrypt".to_owned()]].concat());
}

#[tokio::test]
async fn half_a_key_service_stops_the_start() {
    for arguments in [&["--kms", "vault"][..], &["--kms-url", "https://vault.acme.dev"]] {
        let error = Broker::start_error(arguments).await;
        assert!(error.contains("FLOTILLA_BROKER_KMS_TOKEN_FILE"), "{error}");
    }
    let many = ["missing"; 9].join(",");
    let error = Broker::start_error(&["--further-key-files", &many]).await;
    assert!(error.contains("more than 8 files"), "{error}");
}
