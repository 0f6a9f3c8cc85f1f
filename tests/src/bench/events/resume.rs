//! A client that reconnects after it missed many events.

use super::sizes::Sizes;
use crate::{
    Options,
    api::Api,
    bench::{
        figure::{Figure, Target},
        machine::process::Process,
        model::Model,
        samples::Samples,
        stored::past::{self, Past, PastView},
        testbed::{Servers, Testbed},
    },
};
use rpc::v1::{self, subscribe_response::Item};
use std::{
    ops::Range,
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// How long a client waits for the next event.
const PATIENCE: Duration = Duration::from_secs(20);
/// Least number of events of one turn with a tool.
const TURN_EVENTS: u64 = 10;
/// Size of the tool output in each turn; bytes.
const OUTPUT_BYTES: usize = 200;

/// Measures from the call to the last missed event.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    let (_gateway, url) = Process::gateway(&testbed.stack).await;
    let api = testbed.stack.api.at(&url);
    let turns = usize::try_from(sizes.missed / TURN_EVENTS).expect("few turns") + 1;
    let past = Past { turns, output_bytes: OUTPUT_BYTES, view: PastView::Everything };
    let session = past::session(&testbed, &api, &model, past).await;
    let head = api.get(&session).await.event_seq;
    let cursor = format!("v1.{}", head.checked_sub(sizes.missed).expect("a long past"));
    let mut samples = Samples::default();
    for _ in 0..sizes.rounds {
        let begun = Instant::now();
        catch_up(&api, &session, &cursor, head - sizes.missed..head).await;
        samples.push(begun.elapsed());
    }
    testbed.end().await;
    vec![Figure::times(
        format!("catching up on {} missed events", sizes.missed),
        samples,
        Target::AtMost(100.0),
    )]
}

/// Reads from a cursor to the head, and checks that each event arrives once and in order. Does not parse the events.
async fn catch_up(api: &Api, session: &str, cursor: &str, missed: Range<u64>) {
    let request = v1::SubscribeRequest {
        session_id: session.to_owned(),
        cursor: cursor.to_owned(),
        ..Default::default()
    };
    let mut stream = api.events().subscribe(request).await.expect("a stream").into_inner();
    let mut last = missed.start;
    while last < missed.end {
        let answer = timeout(PATIENCE, stream.message()).await.expect("an event within the time limit");
        if let Some(Item::Event(event)) = answer.expect("no error").expect("no end of the stream").item {
            assert_eq!(event.seq, last + 1, "each event arrives once and in order");
            last = event.seq;
        }
    }
}
