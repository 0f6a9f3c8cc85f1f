//! One session with many subscribers, each over a separate connection, over gRPC and then over Server-Sent Events. Its model sends more than the
//! gateway can deliver piece by piece, so the gateway joins pieces that have arrived: a delta may contain several chunks.

use super::{sizes::Sizes, sse::SseClient};
use crate::{
    Options,
    api::Api,
    bench::{
        figure::{Figure, Quantity, Target},
        machine::process::Process,
        model::{self, Model, Plan},
        testbed::{Servers, Testbed},
    },
    turn::Watch,
};
use futures::future::join_all;
use std::time::{Duration, Instant};

/// Chunks that a gateway should deliver in one second of CPU time.
const CHUNKS_MIN: f64 = 200_000.0;

#[derive(Debug, Clone, Copy)]
enum Protocol {
    Grpc,
    Sse,
}

/// The subscribers of one session.
enum Subscribers {
    Grpc(Vec<Watch>),
    Sse(Vec<SseClient>),
}

/// What all subscribers received together.
#[derive(Debug, Default, Clone, Copy)]
struct Delivery {
    chunks: usize,
    deltas: usize,
}

/// Measures how many chunks, and how many deltas, the gateway delivers in one second of CPU time.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    let mut figures = vec![];
    for protocol in [Protocol::Grpc, Protocol::Sse] {
        let (gateway, url) = Process::gateway(&testbed.stack).await;
        model.plan(Plan::Text { chunks: sizes.answer_chunks, apart: sizes.apart });
        let session = testbed.stack.session().await;
        let api = testbed.stack.api.at(&url);
        let mut subscribers = Subscribers::connect(protocol, &api, &url, &session, sizes.subscribers).await;
        let (before, begun) = (gateway.cpu_time(), Instant::now());
        testbed.stack.api.prompt(&session, "bench").await.expect("an accepted prompt");
        let delivery = subscribers.until_idle(&session).await;
        let (took, cpu) = (begun.elapsed(), gateway.cpu_time().saturating_sub(before));
        figures.extend(report(protocol, delivery, cpu, took, sizes));
    }
    testbed.end().await;
    figures
}

impl Subscribers {
    /// Subscribes so many clients and waits until the gateway serves all of them.
    async fn connect(protocol: Protocol, api: &Api, url: &str, session: &str, count: usize) -> Self {
        match protocol {
            Protocol::Grpc => {
                let mut watches = vec![];
                for _ in 0..count {
                    watches.push(Watch::start(&api.at(url), session).await);
                }
                Self::Grpc(watches)
            }
            Protocol::Sse => {
                let mut clients = vec![];
                for _ in 0..count {
                    clients.push(SseClient::connect(url, &api.key, "/global/event").await);
                }
                join_all(clients.iter_mut().map(|client| client.has_state_of(session))).await;
                Self::Sse(clients)
            }
        }
    }

    /// Waits until every subscriber has the end of the turn.
    async fn until_idle(&mut self, session: &str) -> Delivery {
        let mut all = Delivery::default();
        match self {
            Self::Grpc(watches) => {
                let outcomes = join_all(watches.iter_mut().map(Watch::until_idle)).await;
                assert!(outcomes.iter().all(|outcome| outcome == "done"), "{outcomes:?}");
                for transcript in watches.iter().map(|watch| &watch.transcript) {
                    all.chunks +=
                        transcript.deltas.values().map(|text| model::stamps(text).count()).sum::<usize>();
                    all.deltas += transcript.pieces.values().map(Vec::len).sum::<usize>();
                }
            }
            Self::Sse(clients) => {
                let counts = clients.iter_mut().map(|client| async move {
                    let mut own = Delivery::default();
                    client.until_idle(session, |frame| own.add(frame)).await;
                    own
                });
                for own in join_all(counts).await {
                    all.chunks += own.chunks;
                    all.deltas += own.deltas;
                }
            }
        }
        all
    }
}

impl Delivery {
    /// Adds a frame, if it is a delta.
    fn add(&mut self, frame: &str) {
        if frame.contains("\"message.part.delta\"") {
            self.deltas += 1;
            self.chunks += model::stamps(frame).count();
        }
    }
}

fn report(
    protocol: Protocol,
    delivery: Delivery,
    cpu: Duration,
    took: Duration,
    sizes: &Sizes,
) -> Vec<Figure> {
    let Delivery { chunks, deltas } = delivery;
    let rate = |name: &str, count: usize, time: Duration, target| {
        let value = count as f64 / time.as_secs_f64().max(0.001);
        Figure::number(format!("{name}, {protocol:?}"), Quantity { value, unit: "/s" }, count, target)
    };
    let sent = (sizes.subscribers * sizes.answer_chunks) as f64;
    vec![
        rate("chunks delivered to clients, per gateway core", chunks, cpu, Target::AtLeast(CHUNKS_MIN)),
        rate("  deltas", deltas, cpu, Target::None),
        rate("  chunks per second of elapsed time", chunks, took, Target::None),
        Figure::number(
            format!("  share of the chunks of the model, {protocol:?}"),
            Quantity { value: 100.0 * chunks as f64 / sent, unit: "%" },
            chunks,
            Target::None,
        ),
    ]
}
