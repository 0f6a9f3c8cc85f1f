//! Many who follow, and nothing happens: what each takes of a gateway's memory.

use super::Sizes;
use crate::{
    Options,
    bench::{
        durability::copies::{self, Owners},
        figure::{Figure, Target},
        ground::{Ground, Servers},
        process::Process,
    },
};
use rpc::v1;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// gRPC streams of one connection.
const STREAMS: usize = 100;
/// The bound on what all of them may take; MB.
const ALL_MB: f64 = 300.0;

/// Measures followers of a session each, over gRPC, and then clients of OpenCode's, each with a connection of its own.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let ground = Ground::start(servers, Options { workers: 0, ..Options::default() }).await;
    let template = ground.stack.session().await;
    ground.stack.api.prompt(&template, "bench").await.expect("an accepted prompt");
    let sessions = copies::make(&ground, &template, Owners::Same, sizes.idle).await;
    let mut figures = vec![];

    let (gateway, url) = Process::gateway(&ground.stack).await;
    ground.stack.api.at(&url).get(&template).await;
    let before = gateway.resident_bytes();
    let mut streams = vec![];
    for some in sessions.chunks(STREAMS) {
        let api = ground.stack.api.at(&url);
        let opened = some.iter().map(|(_, session)| {
            let session_id = session.to_string();
            let request = v1::SubscribeRequest { session_id, tail_only: true, ..Default::default() };
            let mut events = api.events();
            async move { events.subscribe(request).await.expect("a stream").into_inner() }
        });
        streams.extend(futures::future::join_all(opened).await);
    }
    figures.extend(figure(
        "gRPC followers of a session each",
        streams.len(),
        (before, gateway.resident_bytes()),
    ));
    drop((streams, gateway));

    let (gateway, url) = Process::gateway(&ground.stack).await;
    let mut first = connect(&url, &ground.stack.api.key).await;
    read(&mut first, "server.connected").await;
    let before = gateway.resident_bytes();
    let mut connections = vec![first];
    for _ in 0..sizes.idle {
        connections.push(connect(&url, &ground.stack.api.key).await);
    }
    for connection in &mut connections[1..] {
        read(connection, "server.connected").await;
    }
    let after = gateway.resident_bytes();
    figures.extend(figure("OpenCode clients, a connection each", connections.len() - 1, (before, after)));
    drop(connections);
    ground.end().await;
    figures
}

fn figure(name: &str, count: usize, (before, after): (u64, u64)) -> [Figure; 2] {
    let (all, kb) = (after as f64 / 1_000_000.0, after.saturating_sub(before) as f64 / 1_000.0);
    let each = Figure::number(format!("  each of {name}"), (kb / count as f64, "kB"), count, Target::None);
    [Figure::number(format!("gateway with {count} {name}"), (all, "MB"), count, Target::AtMost(ALL_MB)), each]
}

/// Asks for the events of a directory, as little of a client as there can be.
async fn connect(gateway_url: &str, key: &str) -> TcpStream {
    let address = gateway_url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!(
        "GET /event?directory=bench HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("a sent request");
    stream
}

async fn read(stream: &mut TcpStream, until: &str) {
    let mut received = vec![];
    while !String::from_utf8_lossy(&received).contains(until) {
        let count = stream.read_buf(&mut received).await.expect("an answer");
        assert!(count > 0, "the stream ended: {}", String::from_utf8_lossy(&received));
    }
}
