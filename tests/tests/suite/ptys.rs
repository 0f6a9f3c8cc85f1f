//! Terminals of sessions: over gRPC as services use them, and over HTTP and a WebSocket as OpenCode's clients do.

use e2e::{Stack, api::assert_refused, turn::run};
use futures::{SinkExt as _, StreamExt as _};
use reqwest::{Method, StatusCode};
use rpc::v1::{self, attach_pty_response::Item};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, Message, client::IntoClientRequest as _},
};
use tonic::Code;

/// A directory on the machine of a client.
const DIRECTORY: &str = "/home/me/canvas";

fn shell(session_id: &str, script: &str) -> v1::CreatePtyRequest {
    v1::CreatePtyRequest {
        session_id: session_id.to_owned(),
        command: "bash".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        ..Default::default()
    }
}

#[tokio::test]
async fn a_person_can_use_a_terminal_while_the_agent_works() {
    let stack = Stack::start().await;
    let (api, session) = (&stack.api, stack.session().await);
    // Before the first prompt the files are created for the terminal.
    let script = "echo from-a-person > note; stty size; read -r line; echo \"got $line\"; exit 4";
    let terminal = api.ptys().create_pty(shell(&session, script)).await.unwrap().into_inner().pty.unwrap();
    assert!(terminal.id.starts_with("pty_") && terminal.exit_code.is_none(), "{terminal:?}");
    let (typed, receiver) = mpsc::channel(4);
    let first =
        v1::AttachPtyRequest { pty_id: terminal.id.clone(), from_offset_bytes: Some(0), data: vec![] };
    typed.send(first).await.unwrap();
    let mut items = api.ptys().attach_pty(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let mut text = String::new();
    // The agent takes the session over, and reads what the person wrote.
    assert_eq!(run(api, &session, "@tool bash {\"command\":\"cat note\"}\n@text done").await.0, "done");
    assert_eq!(api.tool_calls(&session).await[0].result, "from-a-person\n");
    typed.send(v1::AttachPtyRequest { data: b"yes\n".to_vec(), ..Default::default() }).await.unwrap();
    let exit = loop {
        match items.message().await.unwrap().unwrap().item.unwrap() {
            Item::Replay(replay) => assert_eq!((replay.from_offset_bytes, replay.lost_bytes), (0, 0)),
            Item::Output(output) => text.push_str(&String::from_utf8_lossy(&output.data)),
            Item::Exit(exit) => break exit.code,
        }
    };
    assert_eq!((exit, text.as_str()), (4, "24 80\r\nyes\r\ngot yes\r\n"));
    let listed = v1::ListPtysRequest { session_id: session.clone() };
    let listed = api.ptys().list_ptys(listed).await.unwrap().into_inner().ptys;
    assert_eq!(listed, [v1::Terminal { exit_code: Some(4), ..terminal.clone() }]);
    let (pty_id, data) = (terminal.id.clone(), vec![b'x'; 512 * 1024]);
    let pasted = v1::AttachPtyRequest { pty_id, data, ..Default::default() };
    let refused = api.ptys().attach_pty(tokio_stream::once(pasted.clone())).await;
    assert_refused(refused, Code::OutOfRange, "body_too_large");
    let waiting =
        api.ptys().create_pty(shell(&session, "read -r line")).await.unwrap().into_inner().pty.unwrap();
    let first = v1::AttachPtyRequest { pty_id: waiting.id, ..Default::default() };
    let later = v1::AttachPtyRequest { pty_id: String::new(), ..pasted };
    let mut items = api.ptys().attach_pty(tokio_stream::iter([first, later])).await.unwrap().into_inner();
    let refused = loop {
        match items.message().await {
            Ok(item) => assert!(item.is_some(), "the stream ended without an error"),
            Err(status) => break status,
        }
    };
    assert_refused::<()>(Err(refused), Code::OutOfRange, "body_too_large");
    let delete = v1::DeletePtyRequest { pty_id: terminal.id.clone() };
    api.ptys().delete_pty(delete.clone()).await.unwrap();
    assert_refused(api.ptys().delete_pty(delete).await, Code::NotFound, "pty_not_found");
    let outside = v1::CreatePtyRequest { directory: "/etc".to_owned(), ..shell(&session, "true") };
    assert_refused(api.ptys().create_pty(outside).await, Code::InvalidArgument, "path_outside_workspace");
}

/// An OpenCode client in one directory.
struct Client {
    url: String,
    key: String,
    http: reqwest::Client,
}

impl Client {
    fn of(stack: &Stack) -> Self {
        let (url, key) = (stack.gateway_url().to_owned(), stack.api.key.clone());
        Self { url, key, http: reqwest::Client::new() }
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        request.basic_auth("opencode", Some(&self.key)).header("x-opencode-directory", DIRECTORY)
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let response = self.request(method, path).json(&body).send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    async fn ticket(&self, pty: &str) -> String {
        let request = self.request(Method::POST, &format!("/pty/{pty}/connect-token"));
        let response = request.header("x-opencode-ticket", "1").send().await.unwrap();
        let token: Value = response.json().await.unwrap();
        assert_eq!(token["expires_in"], 60, "{token}");
        token["ticket"].as_str().unwrap().to_owned()
    }

    /// Connects like a web page, which cannot send headers.
    async fn connect(&self, pty: &str, query: &str) -> Result<Socket, StatusCode> {
        let address = self.url.replacen("http", "ws", 1);
        let request = format!("{address}/pty/{pty}/connect?{query}").into_client_request().unwrap();
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Socket { socket, seen: String::new(), cursors: vec![] }),
            Err(Error::Http(response)) => Err(response.status()),
            Err(error) => panic!("{error}"),
        }
    }
}

struct Socket {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    seen: String,
    cursors: Vec<u64>,
}

impl Socket {
    async fn next(&mut self) -> bool {
        match self.socket.next().await {
            Some(Ok(Message::Text(text))) => self.seen.push_str(&text),
            Some(Ok(Message::Binary(data))) => {
                assert_eq!(data[0], 0);
                let control: Value = serde_json::from_slice(&data[1..]).unwrap();
                self.cursors.push(control["cursor"].as_u64().unwrap());
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => return false,
            Some(Ok(other)) => panic!("{other:?}"),
        }
        true
    }

    async fn until(&mut self, text: &str) {
        while !self.seen.contains(text) {
            assert!(self.next().await, "{text:?} did not come: {:?}", self.seen);
        }
    }
}

/// Waits for the next event of this type in a stream.
async fn event(stream: &mut reqwest::Response, unread: &mut String, kind: &str) -> Value {
    loop {
        while let Some((frame, rest)) = unread.split_once("\n\n") {
            let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or("null");
            let event: Value = serde_json::from_str(data).unwrap();
            *unread = rest.to_owned();
            if event["type"] == kind {
                return event["properties"].clone();
            }
        }
        let chunk = stream.chunk().await.unwrap().expect("the stream continues");
        unread.push_str(std::str::from_utf8(&chunk).unwrap());
    }
}

#[tokio::test]
async fn an_opencode_client_can_use_terminals() {
    let stack = Stack::start().await;
    let client = Client::of(&stack);
    let mut stream = client.request(Method::GET, "/event").send().await.unwrap();
    let mut unread = String::new();
    event(&mut stream, &mut unread, "server.connected").await;
    assert_eq!(client.call(Method::GET, "/pty", json!({})).await, (StatusCode::OK, json!([])));
    let shells = client.call(Method::GET, "/pty/shells", json!({})).await.1;
    assert_eq!(shells[0], json!({"path": "/bin/bash", "name": "bash", "acceptable": true}));
    let new = json!({"command": "/bin/sh", "title": "t", "cwd": DIRECTORY, "env": {"PS1": "$ "}});
    let (status, terminal) = client.call(Method::POST, "/pty", new).await;
    let id = terminal["id"].as_str().unwrap().to_owned();
    let want = json!({
        "id": id, "title": "t", "command": "/bin/sh", "args": ["-l"], "cwd": DIRECTORY, "pid": terminal["pid"],
        "status": "running",
    });
    assert_eq!((status, &terminal), (StatusCode::OK, &want));
    assert_eq!(event(&mut stream, &mut unread, "pty.created").await, json!({"info": want}));
    assert_eq!(client.call(Method::GET, "/pty", json!({})).await.1, json!([want]));
    let path = format!("/pty/{id}");
    let change = json!({"title": "new", "size": {"rows": 20, "cols": 100}});
    let (_, changed) = client.call(Method::PUT, &path, change).await;
    assert_eq!(changed["title"], "new");
    assert_eq!(event(&mut stream, &mut unread, "pty.updated").await["info"], changed);

    let mut socket = client
        .connect(&id, &format!("directory={DIRECTORY}&ticket={}", client.ticket(&id).await))
        .await
        .unwrap();
    socket.socket.send(Message::text("stty size; printf 'ž%s\\n' ☃\r")).await.unwrap();
    socket.until("20 100\r\n").await;
    socket.until("ž☃\r\n").await;
    // If the text is not ASCII, the client receives its length in bytes, so that it misses and repeats nothing.
    let auth = e2e_token(&client.key);
    let from = |cursor: i64| format!("directory={DIRECTORY}&cursor={cursor}&auth_token={auth}");
    let mut again = client.connect(&id, &from(0)).await.unwrap();
    again.until("ž☃\r\n").await;
    while again.cursors.is_empty() {
        assert!(again.next().await);
    }
    let bytes = again.seen.len() as i64;
    let mut rest = client.connect(&id, &from(bytes)).await.unwrap();
    let mut future = client.connect(&id, &from(-1)).await.unwrap();
    for socket in [&mut rest, &mut future] {
        while socket.cursors.is_empty() {
            assert!(socket.next().await, "the client receives its position");
        }
    }
    socket.socket.send(Message::text("exit 5\r")).await.unwrap();
    while rest.next().await {}
    while future.next().await {}
    assert!(rest.seen.contains("exit 5") && !rest.seen.contains('☃'), "{:?}", rest.seen);
    assert!(!future.seen.contains('☃'), "{:?}", future.seen);
    assert_eq!(event(&mut stream, &mut unread, "pty.exited").await, json!({"id": id, "exitCode": 5}));
    let (_, ended) = client.call(Method::GET, &path, json!({})).await;
    assert_eq!((&ended["status"], &ended["exitCode"]), (&json!("exited"), &json!(5)));
    assert_eq!(client.call(Method::DELETE, &path, json!({})).await, (StatusCode::OK, json!(true)));
    assert_eq!(event(&mut stream, &mut unread, "pty.deleted").await, json!({"id": id}));
    let (status, gone) = client.call(Method::GET, &path, json!({})).await;
    assert_eq!((status, &gone["_tag"]), (StatusCode::NOT_FOUND, &json!("PtyNotFoundError")));
}

/// Encodes a credential for the query, which a page uses instead of a header.
fn e2e_token(key: &str) -> String {
    use std::fmt::Write as _;
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut token = String::new();
    for chunk in format!("opencode:{key}").as_bytes().chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = (bits >> (18 - 6 * place)) & 63;
            let character = if place > chunk.len() { '=' } else { char::from(alphabet[digit as usize]) };
            if character.is_ascii_alphanumeric() {
                token.push(character);
            } else {
                write!(token, "%{:02X}", u32::from(character)).unwrap();
            }
        }
    }
    token
}

#[tokio::test]
async fn a_ticket_is_valid_once_for_one_terminal_and_directory() {
    let stack = Stack::start().await;
    let client = Client::of(&stack);
    let make = async || {
        let new = json!({"command": "sleep", "args": ["1000"]});
        client.call(Method::POST, "/pty", new).await.1["id"].as_str().unwrap().to_owned()
    };
    let (id, other) = (make().await, make().await);
    let (status, refused) = client.call(Method::POST, &format!("/pty/{id}/connect-token"), json!({})).await;
    let message = "Invalid PTY connect token request";
    assert_eq!(
        (status, refused),
        (StatusCode::FORBIDDEN, json!({"_tag": "PtyForbiddenError", "message": message}))
    );
    let here = |ticket: &str| format!("directory={DIRECTORY}&ticket={ticket}");
    let ticket = client.ticket(&id).await;
    assert!(client.connect(&id, &here(&ticket)).await.is_ok());
    for (pty, query) in [
        (&id, here(&ticket)),
        (&other, here(&client.ticket(&id).await)),
        (&id, format!("directory=/elsewhere&ticket={}", client.ticket(&id).await)),
        (&id, format!("ticket={}", client.ticket(&id).await)),
        (&id, here("guessed")),
    ] {
        assert_eq!(client.connect(pty, &query).await.err(), Some(StatusCode::FORBIDDEN), "{query}");
    }
    assert_eq!(client.connect(&id, "").await.err(), Some(StatusCode::UNAUTHORIZED));
    // A page of another site, for which the browser sends the user's key.
    let auth = e2e_token(&client.key);
    let address = client.url.replacen("http", "ws", 1);
    for (origin, is_let_in) in [("https://evil.example", false), ("http://localhost:3000", true)] {
        let url = format!("{address}/pty/{id}/connect?directory={DIRECTORY}&auth_token={auth}");
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("origin", origin.parse().unwrap());
        assert_eq!(connect_async(request).await.is_ok(), is_let_in, "{origin}");
    }
    // A client that sends more than a person can type is disconnected before the message is complete.
    let mut socket = client.connect(&id, &here(&client.ticket(&id).await)).await.unwrap();
    drop(socket.socket.send(Message::text("x".repeat(512 * 1024))).await);
    while socket.next().await {}
    assert!(!socket.seen.contains("xx"), "none of it was typed");
    // The key of another tenant opens none of these terminals.
    let stranger = Client { key: stack.other_tenant().await.key, ..Client::of(&stack) };
    let (status, _) = stranger.call(Method::GET, &format!("/pty/{id}"), json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let query = format!("directory={DIRECTORY}&auth_token={}", e2e_token(&stranger.key));
    assert_eq!(stranger.connect(&id, &query).await.err(), Some(StatusCode::NOT_FOUND));
}
