//! The memory that a gateway uses for each of many idle subscribers.

use super::sizes::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        process::Process,
        stored::copies::{self, Owners},
        testbed::{Servers, Testbed},
    },
};
use rpc::v1;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Number of gRPC streams over one connection.
const STREAMS: usize = 100;
/// Limit of the memory for all of them; MB.
const ALL_MB: f64 = 300.0;

/// Measures gRPC subscribers of one session each, and then OpenCode clients with a separate connection each.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let testbed = Testbed::start(servers, Options { workers: 0, ..Options::default() }).await;
    let template = testbed.stack.session().await;
    testbed.stack.api.prompt(&template, "bench").await.expect("an accepted prompt");
    let sessions = copies::make(&testbed, &template, Owners::Same, sizes.idle).await;
    let mut figures = vec![];

    let (gateway, url) = Process::gateway(&testbed.stack).await;
    testbed.stack.api.at(&url).get(&template).await;
    let before = gateway.resident_bytes();
    let mut streams = vec![];
    for some in sessions.chunks(STREAMS) {
        let api = testbed.stack.api.at(&url);
        let opened = some.iter().map(|(_, session)| {
            let session_id = session.to_string();
            let request = v1::SubscribeRequest { session_id, tail_only: true, ..Default::default() };
            let mut events = api.events();
            async move { events.subscribe(request).await.expect("a stream").into_inner() }
        });
        streams.extend(futures::future::join_all(opened).await);
    }
    figures.extend(figure("gRPC subscribers", streams.len(), before, gateway.resident_bytes()));
    drop((streams, gateway));

    let (gateway, url) = Process::gateway(&testbed.stack).await;
    let mut first = connect(&url, &testbed.stack.api.key).await;
    read(&mut first, "server.connected").await;
    let before = gateway.resident_bytes();
    let mut connections = vec![first];
    for _ in 0..sizes.idle {
        connections.push(connect(&url, &testbed.stack.api.key).await);
    }
    for connection in &mut connections[1..] {
        read(connection, "server.connected").await;
    }
    let after = gateway.resident_bytes();
    figures.extend(figure("OpenCode clients, one connection each", connections.len() - 1, before, after));
    drop(connections);
    testbed.end().await;
    figures
}

fn figure(name: &str, count: usize, before_bytes: u64, after_bytes: u64) -> [Figure; 2] {
    let all = Quantity { value: after_bytes as f64 / 1_000_000.0, unit: "MB" };
    let added_kb = after_bytes.saturating_sub(before_bytes) as f64 / 1_000.0;
    let each = Figure::number(
        format!("  each of {name}"),
        Quantity { value: added_kb / count as f64, unit: "kB" },
        count,
        Target::None,
    );
    [Figure::number(format!("gateway with {count} {name}"), all, count, Target::AtMost(ALL_MB)), each]
}

/// Requests the events of a directory, as a minimal client.
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
