//! OpenCode and Flotilla side by side: the same client calls the same routes, and the same model answers both.

mod client;
mod server;

use super::{
    figure::{Figure, Quantity, Target},
    model::{self, Call, Model, Plan},
    samples::Samples,
};
use client::{Client, Events};
use futures::future::join_all;
pub use server::{Server, opencode, project};
use std::time::{Duration, Instant};

/// Time between two chunks of a model that is not in a hurry: further than any gathering reaches.
const SLOW: Duration = Duration::from_millis(40);
/// Time between two chunks of a fast model.
const FAST: Duration = Duration::from_millis(10);
/// Calls before the first one that counts: it starts the sandbox, and loads code.
const WARM_UP: usize = 2;

#[derive(Debug, Clone)]
pub struct Sizes {
    /// Sessions of each kind, one after the other.
    pub rounds: usize,
    /// Steps of a session with tools.
    pub steps: usize,
    /// Streams at the same time.
    pub streams: usize,
    /// Chunks of each fast stream.
    pub chunks: usize,
    /// Short sessions at the same time.
    pub crowd: usize,
    /// Files of the repository on which the sessions work.
    pub files: usize,
}

impl Sizes {
    /// Returns the sizes for the report.
    pub fn full() -> Self {
        Self { rounds: 30, steps: 20, streams: 50, chunks: 300, crowd: 16, files: 2_000 }
    }

    /// Returns small sizes, to check that every measurement runs.
    pub fn smoke() -> Self {
        Self { rounds: 1, steps: 4, streams: 2, chunks: 10, crowd: 2, files: 3 }
    }
}

/// What was measured of one server.
struct Measured {
    times: Vec<(String, Samples)>,
    numbers: Vec<(String, Quantity)>,
}

/// Measures both servers, one after the other, and compares them.
pub async fn measure(peer: &Server, own: &Server, model: &Model, sizes: &Sizes) -> Vec<Figure> {
    let peer = measure_one(peer, model, sizes).await;
    let own = measure_one(own, model, sizes).await;
    let mut figures = vec![];
    for ((name, peer), (_, own)) in peer.times.into_iter().zip(own.times) {
        for percent in [50, 99] {
            let ratio = own.percentile(percent).as_secs_f64() / peer.percentile(percent).as_secs_f64();
            let name = format!("{name}, p{percent}: Flotilla / OpenCode");
            figures.push(compared(name, ratio, own.count()));
        }
        figures.push(Figure::times(format!("  OpenCode: {name}"), peer, Target::None));
        figures.push(Figure::times(format!("  Flotilla: {name}"), own, Target::None));
    }
    for ((name, peer), (_, own)) in peer.numbers.into_iter().zip(own.numbers) {
        figures.push(compared(format!("{name}: Flotilla / OpenCode"), own.value / peer.value, 1));
        figures.push(Figure::number(format!("  OpenCode: {name}"), peer, 1, Target::None));
        figures.push(Figure::number(format!("  Flotilla: {name}"), own, 1, Target::None));
    }
    figures
}

/// A ratio of costs: Flotilla is nowhere slower than OpenCode.
fn compared(name: String, ratio: f64, count: usize) -> Figure {
    Figure::number(name, Quantity { value: ratio, unit: "x" }, count, Target::AtMost(1.0))
}

async fn measure_one(server: &Server, model: &Model, sizes: &Sizes) -> Measured {
    let client = Client::new(server);
    let mut events = client.events().await;
    let mut measured = Measured { times: vec![], numbers: vec![] };
    texts(&client, &mut events, model, sizes, &mut measured).await;
    for (name, call) in [("step with bash", Call::True), ("step with a to-do list", Call::Todos)] {
        let samples = steps(&client, &mut events, model, call, sizes.steps).await;
        measured.times.push((name.to_owned(), samples));
    }
    for streams in [1, sizes.streams] {
        let before = server.cpu_time();
        let samples = relay(&client, &mut events, model, streams, sizes.chunks).await;
        let cpu = server.cpu_time().saturating_sub(before).as_secs_f64() * 100_000.0 / samples.count() as f64;
        measured.times.push((format!("chunk to client, {streams} x 100/s"), samples));
        let name = format!("CPU of 100,000 chunks, {streams} x 100/s");
        measured.numbers.push((name, Quantity { value: cpu, unit: "s" }));
    }
    for crowd in [1, sizes.crowd] {
        let sessions = sizes.rounds * crowd;
        let (before, begun) = (server.cpu_time(), Instant::now());
        short_sessions(&client, &mut events, model, crowd, sessions).await;
        let each = begun.elapsed().as_secs_f64() * 1_000.0 / sessions as f64;
        let cpu = server.cpu_time().saturating_sub(before).as_secs_f64() * 1_000.0 / sessions as f64;
        let name = format!("time of a short session, {crowd} at once");
        measured.numbers.push((name, Quantity { value: each, unit: "ms" }));
        measured
            .numbers
            .push((format!("CPU of a short session, {crowd} at once"), Quantity { value: cpu, unit: "ms" }));
    }
    measured
}

/// A prompt, its text and its end, in sessions one after the other.
async fn texts(client: &Client, events: &mut Events, model: &Model, sizes: &Sizes, measured: &mut Measured) {
    let (mut begin, mut end, mut chunks) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..WARM_UP + sizes.rounds {
        model.plan(Plan::Text { chunks: 10, apart: SLOW });
        let session = client.session().await;
        let prompted_at = Instant::now();
        client.prompt(&session).await;
        let mut relayed = Samples::default();
        let idle = events.until_idle(&session, |text| note_stamps(&mut relayed, model, text)).await;
        if round < WARM_UP {
            continue;
        }
        let log = model.take();
        begin.push(log.requests[0] - prompted_at);
        end.push(idle - log.answers[0]);
        chunks.extend(relayed);
    }
    for (name, samples) in [
        ("prompt to model request", begin),
        ("last byte to idle", end),
        ("chunk to client, 40 ms apart", chunks),
    ] {
        measured.times.push((name.to_owned(), samples));
    }
}

/// From the end of an answer with a call to the next request, in one session.
async fn steps(client: &Client, events: &mut Events, model: &Model, call: Call, steps: usize) -> Samples {
    model.plan(Plan::Tools { steps: WARM_UP + steps, call });
    let session = client.session().await;
    client.prompt(&session).await;
    events.until_idle(&session, |_| {}).await;
    let log = model.take();
    let between = log.answers.iter().zip(log.requests.iter().skip(1));
    between.skip(WARM_UP).map(|(answer, next)| *next - *answer).collect()
}

/// From a chunk of a fast model to the client, while so many models stream.
async fn relay(
    client: &Client,
    events: &mut Events,
    model: &Model,
    streams: usize,
    chunks: usize,
) -> Samples {
    model.plan(Plan::Text { chunks, apart: FAST });
    let sessions = join_all((0..streams).map(|_| client.session())).await;
    join_all(sessions.iter().map(|session| client.prompt(session))).await;
    let mut relayed = Samples::default();
    let mut open = sessions.len();
    while open > 0 {
        let event = events.next().await;
        if event.is_idle() && sessions.iter().any(|session| event.is_of(session)) {
            open -= 1;
        } else {
            note_stamps(&mut relayed, model, event.text());
        }
    }
    relayed
}

/// So many sessions with one short answer, of which `crowd` run at once.
async fn short_sessions(client: &Client, events: &mut Events, model: &Model, crowd: usize, sessions: usize) {
    model.plan(Plan::Tools { steps: 0, call: Call::True });
    let begin = async || {
        let session = client.session().await;
        client.prompt(&session).await;
    };
    join_all((0..crowd).map(|_| begin())).await;
    let mut begun = crowd;
    for _ in 0..sessions {
        while !events.next().await.is_idle() {}
        if begun < sessions {
            begun += 1;
            begin().await;
        }
    }
}

fn note_stamps(samples: &mut Samples, model: &Model, text: &str) {
    let now = model.began.elapsed();
    samples.extend(model::stamps(text).map(|sent_at| now.saturating_sub(sent_at)).collect());
}
