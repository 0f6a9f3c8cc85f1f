//! The memory that a gateway uses for each of many idle subscribers.

use super::{sizes::Sizes, sse::SseClient};
use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        machine::process::Process,
        stored::copies::{self, Owners},
        testbed::{Servers, Testbed},
    },
};
use rpc::v1;

/// Number of gRPC streams over one connection.
const STREAMS: usize = 100;
const PATH: &str = "/event?directory=bench";
/// Limit of the memory of the gateway with all of them; MB.
const ALL_MB: f64 = 200.0;

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
    let connect = async || SseClient::connect(&url, &testbed.stack.api.key, PATH).await;
    let mut first = connect().await;
    first.connected().await;
    let before = gateway.resident_bytes();
    let mut connections = vec![first];
    for _ in 0..sizes.idle {
        connections.push(connect().await);
    }
    for connection in &mut connections[1..] {
        connection.connected().await;
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
