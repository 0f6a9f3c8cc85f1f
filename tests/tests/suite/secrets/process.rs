//! The broker and the command line as programs.

use super::{entry, list, set};
use crate::opencode::screen::Screen;
use e2e::{
    Options, Stack,
    api::{Api, assert_refused},
    faults::cluster::sibling,
    settings::{BrokerSettings, GATEWAY_TOKEN, Outside, WORKER_TOKEN},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rpc::{
    client::Bearer,
    v1::{self, broker_service_client::BrokerServiceClient},
};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio, time::Duration};
use tokio::{io::AsyncWriteExt as _, process::Command};
use tonic::Code;

const VALUE: &str = "hunter-4711-value";

/// The broker as a program that writes everything to a log.
fn broker(settings: &BrokerSettings, log: &Path) -> Command {
    let mut command = Command::new(sibling("flotilla").unwrap());
    command.args(settings.arguments()).args(["--log-filter", "trace", "--log-format", "json"]);
    let log = fs::File::create(log).unwrap();
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
    command
}

/// Starts a broker that must refuse to, and returns what it says.
async fn refusal(settings: &BrokerSettings, log: &Path) -> String {
    let ended = tokio::time::timeout(Duration::from_secs(30), broker(settings, log).status()).await;
    let text = fs::read_to_string(log).unwrap();
    assert_eq!(ended.expect("the broker ends").unwrap().code(), Some(1), "{text}");
    assert!(!text.contains("panic"), "{text}");
    text
}

#[tokio::test]
async fn a_broker_with_a_wrong_key_file_says_so_and_ends() {
    let (database, directory) = (testkit::database().await, tempfile::tempdir().unwrap());
    let (key_file, log) = (directory.path().join("key"), directory.path().join("log"));
    let listen = "127.0.0.1:0".parse().unwrap();
    let settings = BrokerSettings {
        listen,
        database_url: database.broker_url.clone(),
        egress: key_file.with_file_name("egress"),
        push: directory.path().join("push"),
        key_file,
        outside: Outside::default(),
    };
    fs::write(&settings.key_file, [1; 31]).unwrap();
    fs::set_permissions(&settings.key_file, fs::Permissions::from_mode(0o600)).unwrap();
    let text = refusal(&settings, &log).await;
    assert!(text.contains("has not 32 bytes") && text.contains("restore it"), "{text}");

    fs::write(&settings.key_file, [1; 32]).unwrap();
    fs::set_permissions(&settings.key_file, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(refusal(&settings, &log).await.contains("chmod 600"));

    let mut connection = testkit::database::connect(&database.migrator_url).await;
    sqlx::raw_sql("insert into secret_key (key_id) values ('another')")
        .execute(&mut connection)
        .await
        .unwrap();
    fs::set_permissions(&settings.key_file, fs::Permissions::from_mode(0o600)).unwrap();
    let text = refusal(&settings, &log).await;
    assert!(text.contains("sealed with the key another") && text.contains("restore the key file"), "{text}");
    let missing = BrokerSettings { key_file: directory.path().join("missing/key"), ..settings };
    assert!(refusal(&missing, &log).await.contains("cannot read or write the key file"));
}

#[tokio::test]
async fn a_second_broker_of_a_directory_of_doors_says_so_and_ends() {
    let stack = Stack::with(Options { broker: true, ..Options::default() }).await;
    let directory = tempfile::tempdir().unwrap();
    let own = stack.broker_settings();
    let second = BrokerSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        push: directory.path().join("push"),
        ..own.clone()
    };
    let text = refusal(&second, &directory.path().join("log")).await;
    let want = format!("another broker uses {}", own.egress.display());
    assert!(text.contains("use FLOTILLA_BROKER_EGRESS") && text.contains(&want), "{text}");
    // A broker with a directory of its own starts: the brokers of several machines share one database.
    let egress = directory.path().join("egress");
    let log = directory.path().join("log-of-another");
    let _other = broker(&BrokerSettings { egress, ..second }, &log).spawn().unwrap();
    let is_ready = async || fs::read_to_string(&log).unwrap().contains("broker answers at");
    testkit::eventually("a broker with a directory of its own runs", is_ready).await;
}

#[tokio::test]
async fn a_person_sets_secrets_and_the_broker_writes_none_into_its_log() {
    let stack = Stack::start().await;
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let _broker = broker(stack.broker_settings(), &log).spawn().unwrap();
    let ready = async || set(&stack.api, "", "READY", VALUE.as_bytes()).await.is_ok();
    testkit::eventually("the broker answers", ready).await;
    let mode = fs::metadata(&stack.broker_settings().key_file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let person = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).env_clear().env("HOME", directory.path()).env("TERM", "xterm").kill_on_drop(true);
        command.envs(std::env::vars_os().filter(|(name, _)| name == "PATH"));
        command.envs([("FLOTILLA_URL", stack.gateway_url()), ("FLOTILLA_API_KEY", &stack.api.key)]);
        command
    };
    let flotilla = sibling("flotilla").unwrap();
    let flotilla = flotilla.to_str().unwrap();
    let mut piped = person(flotilla, &["secret", "set", "NPM_TOKEN", "--json"]);
    let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(format!("{VALUE}\n").as_bytes()).await.unwrap();
    let output = piped.wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("\"type\":\"secret\"") && !text.contains(VALUE),
        "{text}"
    );

    // A terminal of its own, from which the prompt reads.
    let words = ["--ctty", "--wait", flotilla, "secret", "set", "TYPED", "--project", "project"];
    let mut screen = Screen::start(person("setsid", &words));
    screen.until_output("Value of TYPED:").await;
    testkit::eventually("the terminal hides what is typed", async || !screen.is_cooked()).await;
    screen.type_in(&format!("{VALUE}\r"));
    screen.until_output("TYPED is set").await;
    assert!(!screen.text().contains(VALUE), "{}", screen.text());
    assert_eq!(screen.exit_code().await, Some(0));
    let secrets = list(&stack.api, "").await.unwrap();
    let names: Vec<_> = secrets.iter().map(|(name, project, _)| (name.as_str(), project.as_str())).collect();
    assert_eq!(names, [("NPM_TOKEN", ""), ("READY", ""), ("TYPED", stack.api.project_id.as_str())]);
    assert_eq!(secrets[0], entry("NPM_TOKEN", "", 2));

    a_wrong_token_is_refused(&format!("http://{}", stack.broker_settings().listen)).await;
    let text = fs::read_to_string(&log).unwrap();
    assert!(
        text.contains("a secret was set") && text.contains("\"target\":\"audit\""),
        "the log is complete"
    );
    assert!(!text.contains(VALUE) && !text.contains(GATEWAY_TOKEN) && !text.contains(WORKER_TOKEN));
}

/// The description that `flotilla up` writes when it is ready.
fn description(data: &Path) -> Option<serde_json::Value> {
    serde_json::from_slice(&fs::read(data.join("ready.json")).ok()?).ok()
}

#[tokio::test]
async fn up_starts_the_broker_and_starts_it_again() {
    if e2e::is_left_out(&["redis", "nats"], "`flotilla up` starts all servers") {
        return;
    }
    // Workspaces belong to other users, who must be able to enter the directory.
    let directory =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let data = directory.path().join("data");
    let mut up = Command::new(sibling("flotilla").unwrap());
    up.arg("up").arg("--data").arg(&data).env_clear().env("HOME", directory.path()).kill_on_drop(true);
    up.envs(std::env::vars_os().filter(|(name, _)| name == "PATH"));
    let up =
        up.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(directory.path());
    let mut up = up.spawn().unwrap();
    testkit::eventually("the stack is ready", async || description(&data).is_some()).await;
    let text = |field: &str| description(&data).unwrap()[field].as_str().unwrap().to_owned();
    let api = Api::of_stack(&text("gateway_url"), &text("api_key")).await;
    assert_eq!(set(&api, "", "TOKEN", VALUE.as_bytes()).await.unwrap().version, 1);
    for name in ["broker-key", "broker-gateway-token", "broker-worker-token"] {
        assert_eq!(fs::metadata(data.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let token = |name: &str| fs::read_to_string(data.join(name)).unwrap();
    assert_ne!(token("broker-gateway-token"), token("broker-worker-token"));
    let pid = || description(&data).and_then(|it| it["pids"]["broker"].as_i64());
    let first = pid().unwrap();
    kill(Pid::from_raw(first.try_into().unwrap()), Signal::SIGKILL).unwrap();
    testkit::eventually("another broker runs", async || pid().is_some_and(|pid| pid != first)).await;
    assert_eq!(set(&api, "", "TOKEN", VALUE.as_bytes()).await.unwrap().version, 2);
    kill(Pid::from_raw(up.id().unwrap().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(40), up.wait()).await.unwrap().unwrap().success());
    let logs = fs::read_dir(data.join("logs")).unwrap();
    let logs: Vec<_> = logs.map(|log| fs::read(log.unwrap().path()).unwrap()).collect();
    assert!(logs.len() >= 4, "there are logs");
    let has_value = |log: Vec<u8>| String::from_utf8_lossy(&log).contains(VALUE);
    assert!(!logs.into_iter().any(has_value), "no log has the value");
}

async fn a_wrong_token_is_refused(url: &str) {
    for token in ["", "broker-token-of-test-gatewayS", "operator-key-of-a-test"] {
        let channel = chassis::grpc::channel(url).unwrap();
        let mut client = BrokerServiceClient::with_interceptor(channel, Bearer::new(token).unwrap());
        let refused = client.put_secret(v1::PutSecretRequest::default()).await;
        assert_refused(refused, Code::Unauthenticated, "token_invalid");
    }
    for (token, status, code) in [
        (GATEWAY_TOKEN, Code::InvalidArgument, "argument_invalid"),
        (WORKER_TOKEN, Code::PermissionDenied, "caller_not_allowed"),
    ] {
        let channel = chassis::grpc::channel(url).unwrap();
        let mut client = BrokerServiceClient::with_interceptor(channel, Bearer::new(token).unwrap());
        let refused = client.put_secret(v1::PutSecretRequest::default()).await;
        assert_refused(refused, status, code);
    }
}
