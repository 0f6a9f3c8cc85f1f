//! Malformed calls, and what generic tools request first: reflection, health, gRPC-Web, unknown paths.

use e2e::{Stack, turn::assert_works};
use prost::Message as _;
use reqwest::Client;
use rpc::v1;
use std::net::SocketAddr;
use testkit::tls::authority::{Authority, PORT_NAME};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

const PROMPT: &str = "flotilla.v1.PromptService/AcceptPrompt";

/// Frames a message as gRPC does: uncompressed, with its length.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// Sends bytes as a gRPC call and returns the gRPC status of the refusal.
async fn post(stack: &Stack, method: &str, body: Vec<u8>) -> String {
    let client = Client::builder().http2_prior_knowledge().build().unwrap();
    let request = client
        .post(format!("{}/{method}", stack.gateway_url()))
        .bearer_auth(&stack.api.key)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body);
    let response = testkit::within("an answer", request.send()).await.unwrap();
    assert_eq!(response.status(), 200);
    // A refusal has no body: its status is in the headers.
    let status = response.headers().get("grpc-status");
    status.map_or_else(|| "answered".to_owned(), |status| status.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn malformed_calls_are_refused() {
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let (internal, invalid, too_large) = ("13", "3", ["8", "11"]);
    let good =
        v1::AcceptPromptRequest { session_id: session.clone(), text: "hi".to_owned(), ..Default::default() };
    let good = good.encode_to_vec();
    let mut no_utf8 = good.clone();
    let end = no_utf8.len();
    no_utf8[end - 2..].copy_from_slice(b"\xff\xfe");
    let whole = framed(&good);
    let mut compressed = whole.clone();
    compressed[0] = 1;
    for (what, body) in [
        ("text that is not UTF-8", framed(&no_utf8)),
        ("no protobuf", framed(b"\xff\xff\xff\xff")),
        ("half a field", framed(&good[..good.len() - 1])),
        ("a frame that breaks off", whole[..whole.len() - 1].to_vec()),
        ("half a frame's head", vec![0, 0]),
        ("nothing", vec![]),
        ("compressed without saying how", compressed),
        ("an unknown compression", [vec![7], whole[1..].to_vec()].concat()),
    ] {
        let status = post(&stack, PROMPT, body).await;
        assert!([internal, invalid, "12"].contains(&status.as_str()), "{what}: {status}");
    }
    let huge = [&[0, 0xff, 0xff, 0xff, 0xff], &good[..]].concat();
    let status = post(&stack, PROMPT, huge).await;
    assert!(too_large.contains(&status.as_str()), "a frame of 4 GiB: {status}");
    assert_eq!(stack.api.get(&session).await.event_seq, 1, "no prompt was accepted");
    for method in ["flotilla.v1.PromptService/Nope", "grpc.health.v1.Health/Nope"] {
        assert_eq!(post(&stack, method, framed(b"")).await, "12", "{method}");
    }
    assert_works(&stack.api, &session).await;
}

#[tokio::test]
async fn unknown_paths_are_answered_in_json() {
    let stack = Stack::gateway_alone().await;
    let client = Client::new();
    let far = format!("/no/{}", "x".repeat(5_000));
    for path in ["/no/such/thing", "/no%00such", "/no/../../etc/passwd", &far] {
        for method in [reqwest::Method::GET, reqwest::Method::POST, reqwest::Method::DELETE] {
            let response =
                client.request(method, format!("{}{path}", stack.gateway_url())).send().await.unwrap();
            assert_eq!(response.status(), 404, "{path}");
            assert_eq!(response.headers()["content-type"], "application/json", "{path}");
            let body: serde_json::Value = response.json().await.unwrap();
            assert_eq!(body["name"], "NotFoundError");
            assert!(
                body["data"]["message"].as_str().unwrap().len() < 300,
                "a path is not echoed without end"
            );
        }
    }
}

#[tokio::test]
async fn a_large_head_is_refused_with_a_code() {
    let stack = Stack::gateway_alone().await;
    let long = "x".repeat(40_000);
    let refused = Client::new().get(format!("{}/config", stack.gateway_url())).header("x-long", &long).send();
    let refused = refused.await.unwrap();
    let code = refused.headers()["x-flotilla-code"].clone();
    assert_eq!((refused.status().as_u16(), code.to_str().unwrap()), (431, "head_too_large"));
    let body: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(body["data"]["ref"], "head_too_large", "{body}");
    let mut request = tonic::Request::new(v1::ListProjectsRequest::default());
    request.metadata_mut().insert("x-long", long.parse().unwrap());
    let refused = stack.api.projects().list_projects(request).await;
    e2e::api::assert_refused(refused, tonic::Code::ResourceExhausted, "head_too_large");
}

#[tokio::test]
async fn a_request_of_several_hosts_is_refused_with_a_code() {
    let stack = Stack::gateway_alone().await;
    let request = Client::new().get(format!("{}/config", stack.gateway_url()));
    let refused = request.header("host", "a.example").header("host", "b.example").send().await.unwrap();
    let headers =
        ["x-flotilla-code", "connection"].map(|name| refused.headers()[name].to_str().unwrap().to_owned());
    assert_eq!(
        (refused.status().as_u16(), headers.each_ref().map(String::as_str)),
        (400, ["host_invalid", "close"])
    );
}

#[tokio::test]
async fn browsers_can_call_through_grpc_web() {
    let stack = Stack::gateway_alone().await;
    let call = async |key: &str, session_id: &str| {
        let request = v1::GetSessionRequest { session_id: session_id.to_owned() };
        let request = Client::new()
            .post(format!("{}/flotilla.v1.SessionService/GetSession", stack.gateway_url()))
            .bearer_auth(key)
            .header("content-type", "application/grpc-web+proto")
            .header("x-grpc-web", "1")
            .body(framed(&request.encode_to_vec()));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc-web+proto");
        let in_head = response.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
        (in_head, response.bytes().await.unwrap())
    };
    let session = stack.session().await;
    let (_, body) = call(&stack.api.key, &session).await;
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
    let answer = v1::GetSessionResponse::decode(&body[5..5 + length]).unwrap();
    assert_eq!(answer.session.unwrap().id, session);
    assert_eq!(body[5 + length], 0x80, "the trailers are the last frame");
    assert!(body.ends_with(b"grpc-status:0\r\n"), "{body:?}");
    assert_eq!(call(&stack.api.key, "ses_00000000000000000000000000").await.0.as_deref(), Some("5"));
    assert_eq!(call("flk_unknown", &session).await.0.as_deref(), Some("16"));
}

#[tokio::test]
async fn a_large_body_is_read_for_known_callers_only() {
    let stack = Stack::gateway_alone().await;
    let url = stack.gateway_url();
    let address = url.trim_start_matches("http://");
    // More than a small body, of a message that never ends.
    let beginning = format!("{:x}\r\n{}\r\n", 80 << 10, "x".repeat(80 << 10));
    for key in ["", "authorization: Bearer flk_unknown\r\n"] {
        let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /flotilla.v1.PromptService/AcceptPrompt HTTP/1.1\r\nhost: {address}\r\n{key}content-type: application/grpc-web+proto\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        // The frame announces one megabyte.
        connection.write_all(b"5\r\n\x00\x00\x10\x00\x00\r\n").await.unwrap();
        connection.write_all(beginning.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4_096];
        let read = connection.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).to_lowercase();
        assert!(answer.contains("grpc-status: 16"), "{key}: {answer}");
    }
}

#[tokio::test]
async fn reflection_and_health_need_no_key() {
    let stack = Stack::without_sandbox().await;
    let channel = chassis::grpc::channel(stack.gateway_url()).unwrap();
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(health.into_inner().status(), ServingStatus::Serving);
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let request = ServerReflectionRequest { host: String::new(), message_request };
    let mut reflection = ServerReflectionClient::new(channel);
    let answer = reflection.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    let answer = answer.into_inner().message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(listed) = answer else { panic!("{answer:?}") };
    let listed: Vec<_> = listed.service.iter().map(|service| service.name.as_str()).collect();
    for service in ["Event", "Message", "Permission", "Project", "Prompt", "Question", "Session", "Tenant"] {
        assert!(listed.contains(&&*format!("flotilla.v1.{service}Service")), "{service} in {listed:?}");
    }
    assert!(listed.contains(&"grpc.health.v1.Health"), "{listed:?}");
}

#[tokio::test]
async fn the_port_speaks_both_protocols_within_tls() {
    let stack = Stack::gateway_alone().await;
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path(), "ours");
    let [certificate, key] = authority.sign("port", 2099).map(|file| file.to_str().unwrap().to_owned());
    let with_tls = |arguments: &mut Vec<String>| {
        let options = ["--tls-certificate".to_owned(), certificate, "--tls-key".to_owned(), key];
        arguments.extend(options);
    };
    let gateway = stack.try_gateway(with_tls).await.unwrap();
    let address: SocketAddr = gateway.url.strip_prefix("https://").unwrap().parse().unwrap();
    let trusted = reqwest::Certificate::from_pem(&std::fs::read(&authority.file).unwrap()).unwrap();
    let client = || Client::builder().add_root_certificate(trusted.clone()).resolve(PORT_NAME, address);
    let health = format!("https://{PORT_NAME}:{}/global/health", address.port());
    for (client, version) in
        [(client().http1_only(), reqwest::Version::HTTP_11), (client(), reqwest::Version::HTTP_2)]
    {
        let call = client.build().unwrap().get(&health).bearer_auth(&stack.api.key);
        let answer = testkit::within("an answer", call.send()).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
    }
    let plain = Client::new().get(format!("http://{address}/global/health")).bearer_auth(&stack.api.key);
    testkit::within("the end", plain.send()).await.unwrap_err();
}

#[tokio::test]
async fn a_gateway_does_not_start_with_a_schema_that_it_does_not_know() {
    let stack = Stack::gateway_alone().await;
    let newer = "update _sqlx_migrations set version = version + 1 where version = (select max(version) from _sqlx_migrations)";
    sqlx::query(newer).execute(&mut *stack.database.owner().await).await.unwrap();
    let refused = stack.try_gateway(|_| {}).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("start a newer program"), "{refused}");
    let accepts = |arguments: &mut Vec<String>| arguments.push("--accept-newer-schema".to_owned());
    stack.try_gateway(accepts).await.map(drop).unwrap();
    let nothing = "drop table _sqlx_migrations";
    sqlx::query(nothing).execute(&mut *stack.database.owner().await).await.unwrap();
    let refused = stack.try_gateway(|_| {}).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("run `flotilla migrate`"), "{refused}");
}
