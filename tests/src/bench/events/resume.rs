//! A client that comes again after it missed much.

use super::Sizes;
use crate::{
    Options,
    bench::{
        Samples,
        figure::{Figure, Target},
        ground::{Ground, Servers},
        loops::past::{self, Past, Seen},
        model::Model,
        process::Process,
    },
    turn::Watch,
};
use std::time::Instant;

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
        let mut watch = Watch::from(&api, &session, &cursor).await;
        let mut last = 0;
        while last < head {
            last = watch.next().await.map_or(last, |seen| seen.seq);
        }
        samples.push(begun.elapsed());
        assert_eq!(watch.seen.events.len() as u64, sizes.missed, "each once");
    }
    ground.end().await;
    vec![Figure::times(
        format!("{} missed events caught up on", sizes.missed),
        samples,
        Target::AtMost(100.0),
    )]
}
