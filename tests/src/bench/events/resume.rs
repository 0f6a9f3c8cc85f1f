//! A client that comes again after it missed much.

use super::Sizes;
use crate::{
    Options,
    api::Api,
    bench::{
        Samples,
        figure::{Figure, Target},
        ground::{Ground, Servers},
        loops::past::{self, Past, Seen},
        model::Model,
        process::Process,
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
/// Events of one turn with a tool, at least.
const TURN_EVENTS: u64 = 10;
/// Bytes of the tool's output in each.
const OUTPUT_BYTES: usize = 200;

/// Measures from the call to the last event that was missed.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    let (_gateway, url) = Process::gateway(&ground.stack).await;
    let api = ground.stack.api.at(&url);
    let turns = usize::try_from(sizes.missed / TURN_EVENTS).expect("few turns") + 1;
    let past = Past { turns, output_bytes: OUTPUT_BYTES, seen: Seen::Everything };
    let session = past::session(&ground, &api, &model, past).await;
    let head = api.get(&session).await.event_seq;
    let cursor = format!("v1.{}", head.checked_sub(sizes.missed).expect("a long past"));
    let mut samples = Samples::default();
    for _ in 0..sizes.rounds {
        let begun = Instant::now();
        catch_up(&api, &session, &cursor, head - sizes.missed..head).await;
        samples.push(begun.elapsed());
    }
    ground.end().await;
    vec![Figure::times(
        format!("{} missed events caught up on", sizes.missed),
        samples,
        Target::AtMost(100.0),
    )]
}

/// Reads from a cursor to the head, each event once and in order. What it is to a client to parse them is its own business.
async fn catch_up(api: &Api, session: &str, cursor: &str, missed: Range<u64>) {
    let request = v1::SubscribeRequest {
        session_id: session.to_owned(),
        cursor: cursor.to_owned(),
        ..Default::default()
    };
    let mut stream = api.events().subscribe(request).await.expect("a stream").into_inner();
    let mut last = missed.start;
    while last < missed.end {
        let answer = timeout(PATIENCE, stream.message()).await.expect("something comes in time");
        if let Some(Item::Event(event)) = answer.expect("the stream goes on").expect("no end").item {
            assert_eq!(event.seq, last + 1, "each once and in order");
            last = event.seq;
        }
    }
}
