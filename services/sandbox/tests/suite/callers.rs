//! The tokens of callers, each only for the calls of its caller.

use crate::harness::{Machine, code, directory};
use chassis::grpc;
use rpc::{
    client::Bearer,
    v1::{
        self, sandbox_service_client::SandboxServiceClient, terminal_service_client::TerminalServiceClient,
    },
};

const GATEWAY: &str = "token-of-all-gateways";
const WORKER: &str = "token-of-all-workers";

/// The codes with which a token gets a call of workers, one of gateways, a call of a terminal and one of both. Each request lacks what it needs.
async fn codes(machine: &Machine, token: &str) -> [String; 4] {
    let channel = grpc::channel(&machine.url).unwrap();
    let token = Bearer::new(token).unwrap();
    let mut files = SandboxServiceClient::with_interceptor(channel.clone(), token.clone());
    let mut terminals = TerminalServiceClient::with_interceptor(channel, token);
    [
        code(files.close_tenant(v1::CloseTenantRequest::default()).await),
        code(files.revert_files(v1::RevertFilesRequest::default()).await),
        code(terminals.create_terminal(v1::CreateTerminalRequest::default()).await),
        code(files.read_file(v1::ReadFileRequest::default()).await),
    ]
}

#[tokio::test]
async fn the_token_of_a_caller_is_only_for_its_calls() {
    let directory = directory();
    let tokens = format!("gateway:{GATEWAY},worker:{WORKER}");
    let machine = Machine::start_with(directory.path(), &["--tokens", &tokens]).await;
    let (refused, passed) = ("caller_not_allowed", "argument_invalid");
    assert_eq!(codes(&machine, GATEWAY).await, [refused, passed, passed, passed]);
    assert_eq!(codes(&machine, WORKER).await, [passed, refused, refused, passed]);
    assert_eq!(codes(&machine, "a token that nobody has").await, ["token_invalid"; 4]);
    machine.stop().await;
}

#[tokio::test]
async fn a_token_of_a_caller_that_nobody_knows_stops_the_start() {
    let directory = directory();
    let started = Machine::try_start(directory.path(), &["--tokens", "somebody:aaaaaaaaaaaaaaaa"]).await;
    let error = format!("{:#}", started.err().unwrap());
    assert!(error.contains("neither gateway nor worker") && !error.contains("aaaa"), "{error}");
}
