//! The door of a session to the secrets of its setup or install, with a real vault.

use crate::harness::Broker;
use domain::egress::secrets::{AnswerError, decode};
use rpc::v1;
use std::{fs, os::fd::AsRawFd as _, path::PathBuf};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, net::UnixStream};

type Answer = Result<Vec<(String, String)>, AnswerError>;

struct Testbed {
    broker: Broker,
    directory: TempDir,
}

impl Testbed {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let egress = directory.path().join("egress");
        let broker = Broker::start(&["--egress", egress.to_str().unwrap()]).await;
        Self { broker, directory }
    }

    /// Opens the door of a session of a tenant for these variables and secrets.
    async fn open(&self, tenant: usize, secrets: &[(&str, &str)]) -> Result<(), tonic::Status> {
        let secrets = secrets.iter().map(|(variable, secret)| v1::SecretVariable {
            variable: (*variable).to_owned(),
            secret: (*secret).to_owned(),
        });
        let request = v1::OpenEgressRequest {
            tenant_id: self.broker.tenants[tenant].to_string(),
            session_id: "ses_a".to_owned(),
            project_id: self.broker.project.to_string(),
            secrets: secrets.collect(),
            workspace_opening: Some(1),
            ..Default::default()
        };
        self.broker.client.clone().open_egress(request).await.map(drop)
    }

    fn home(&self, tenant: usize) -> PathBuf {
        self.directory.path().join("egress").join(self.broker.tenants[tenant].to_string()).join("ses_a")
    }

    async fn ask(&self, tenant: usize) -> Answer {
        // The address of a socket has at most 107 bytes, fewer than the path may have.
        let opened = fs::File::open(self.home(tenant).join("door")).unwrap();
        let address = format!("/proc/self/fd/{}/secrets", opened.as_raw_fd());
        let mut answer = vec![];
        UnixStream::connect(address).await.unwrap().read_to_end(&mut answer).await.unwrap();
        decode(&answer)
    }
}

fn given(answer: &Answer) -> Vec<(&str, &str)> {
    answer.as_ref().unwrap().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn refused(answer: Answer) -> String {
    match answer {
        Err(AnswerError::Refused(text) | AnswerError::Passing(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_door_gives_the_newest_values_while_its_rules_name_them() {
    let testbed = Testbed::start().await;
    let (broker, project) = (&testbed.broker, &testbed.broker.project);
    broker.put_secret(None, "NPM", "of-the-tenant\n").await;
    broker.put_secret(Some(project), "NPM", "v4711-project\r\n").await;
    broker.put_secret(None, "KEY", "line one\nline = two\n\n").await;
    testbed.open(0, &[("NPM_TOKEN", "NPM"), ("npm_key", "KEY")]).await.unwrap();
    let answer = testbed.ask(0).await;
    assert_eq!(given(&answer), [("NPM_TOKEN", "v4711-project"), ("npm_key", "line one\nline = two\n")]);
    broker.put_secret(Some(project), "NPM", "v4711-newest").await;
    assert_eq!(given(&testbed.ask(0).await)[0], ("NPM_TOKEN", "v4711-newest"));

    let rules = fs::read_to_string(testbed.home(0).join("rules.json")).unwrap();
    assert!(!rules.contains("NPM_TOKEN"), "a broker that starts again gives none: {rules}");
    let log = broker.log();
    for line in ["a setup or an install got secrets", "NPM@4 KEY@3", "environment.secrets"] {
        assert!(log.contains(line), "{line}");
    }
    for value in ["v4711-project", "v4711-newest", "line = two"] {
        assert!(!log.contains(value), "{value}");
    }
    // The rules of the session's own programs name none.
    testbed.open(0, &[]).await.unwrap();
    assert!(refused(testbed.ask(0).await).contains("(secrets_refused)"));
}

#[tokio::test]
async fn a_door_whose_files_may_be_open_takes_no_secrets() {
    let testbed = Testbed::start().await;
    testbed.broker.put_secret(None, "NPM", "a-value").await;
    for (workspace_opening, has_files) in [(None, false), (Some(1), true), (None, true)] {
        let secret = v1::SecretVariable { variable: "A".to_owned(), secret: "NPM".to_owned() };
        let request = v1::OpenEgressRequest {
            tenant_id: testbed.broker.tenants[0].to_string(),
            session_id: "ses_a".to_owned(),
            secrets: vec![secret],
            workspace_opening,
            has_files,
            ..Default::default()
        };
        let status = testbed.broker.client.clone().open_egress(request).await.unwrap_err();
        assert_eq!(
            rpc::status::code_of(&status).as_deref(),
            Some("argument_invalid"),
            "{workspace_opening:?}"
        );
    }
}

#[tokio::test]
async fn a_door_gives_all_of_its_secrets_or_says_why_not() {
    let testbed = Testbed::start().await;
    testbed.broker.put_secret(None, "NPM", "a-value").await;
    testbed.broker.put_secret(None, "ZERO", "zero\0byte").await;
    testbed.broker.put_secret_for(None, "BOUND", "for-a-server", &["https://registry.npmjs.org/"]).await;
    for (secret, code) in [
        ("MISSING", "(secret_not_found)"),
        ("ZERO", "(secret_value_invalid)"),
        ("BOUND", "(secret_not_for_server)"),
    ] {
        testbed.open(0, &[("A", "NPM"), ("B", secret)]).await.unwrap();
        let text = refused(testbed.ask(0).await);
        assert!(text.contains(code) && text.contains(secret) && !text.contains("a-value"), "{text}");
        assert!(!text.contains("for-a-server"), "{text}");
    }
    // Another tenant with the same settings has no such secret.
    testbed.open(1, &[("A", "NPM")]).await.unwrap();
    assert!(refused(testbed.ask(1).await).contains("(secret_not_found)"));
    let long = "V".repeat(129);
    for (variable, secret, code) in [
        ("A B", "NPM", "argument_invalid"),
        ("A=B", "NPM", "argument_invalid"),
        ("", "NPM", "argument_invalid"),
        (&long, "NPM", "argument_invalid"),
        ("A", "ghp_value", "secret_name_invalid"),
    ] {
        let status = testbed.open(0, &[(variable, secret)]).await.unwrap_err();
        assert_eq!(rpc::status::code_of(&status).as_deref(), Some(code), "{variable}");
        assert!(!status.message().contains("ghp_value"));
    }
    let names: Vec<String> = (0..17).map(|number| format!("V{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "NPM")).collect();
    let status = testbed.open(0, &many).await.unwrap_err();
    assert_eq!(rpc::status::code_of(&status).as_deref(), Some("argument_invalid"));
}
