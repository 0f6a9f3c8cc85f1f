//! One session that many follow, each over a connection of its own. Fragments are said as its worker says them, but faster.

use super::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Target},
        ground::{Ground, Servers},
        model::{Model, Plan},
        process::Process,
    },
    turn::Watch,
};
use bus::feed::{Delta, News};
use futures::future::join_all;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Between two fragments: a worker gathers forty in a second.
const APART: Duration = Duration::from_millis(25);
/// After the last one. Who was too slow for some is brought no more: they are stored nowhere, as a worker's would be.
const LINGER: Duration = Duration::from_secs(1);
/// What a fragment says.
const TEXT: &str = "as many words as come together in one window ";

/// Measures how many fragments the gateway brings to clients in one second of a core.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    let (gateway, url) = Process::gateway(&ground.stack).await;
    // Its first chunk opens the part. Those that follow are behind what is said here, so nobody is brought them.
    model.plan(Plan::Text { chunks: 10_000, apart: Duration::from_secs(1) });
    let session = ground.stack.session().await;
    let mut watches = vec![];
    for _ in 0..sizes.subscribers {
        watches.push(Watch::start(&ground.stack.api.at(&url), &session).await);
    }
    ground.stack.api.prompt(&session, "bench").await.expect("an accepted prompt");
    let mut opened = None;
    for watch in &mut watches {
        watch.until_text().await;
        let (part, pieces) = watch.seen.pieces.iter().next().expect("a part");
        let epoch = watch.seen.events.last().expect("events").epoch;
        let message = watch.seen.events.iter().find(|seen| seen.properties["part"]["id"] == **part);
        let message = message.expect("its part").properties["part"]["messageID"].clone();
        opened = Some((part.clone(), message, pieces[0].1, epoch));
    }
    let (part, message, offset, epoch) = opened.expect("a subscriber");
    let first = Delta {
        epoch,
        message: message.as_str().expect("an id").parse().expect("an id"),
        part: part.parse().expect("an id"),
        offset,
        text: TEXT.to_owned(),
    };
    let (before, begun) = (gateway.cpu_time(), Instant::now());
    let is_over = CancellationToken::new();
    let reading = watches.iter_mut().map(|watch| async {
        let read = async {
            loop {
                watch.next().await;
            }
        };
        is_over.run_until_cancelled(read).await;
        watch.seen.pieces[&part].len() - 1
    });
    let saying = async {
        say(&ground, &session, first, sizes.fragments).await;
        tokio::time::sleep(LINGER).await;
        is_over.cancel();
    };
    let (_, came) = tokio::join!(saying, join_all(reading));
    let (took, cpu) = (begun.elapsed() - LINGER, gateway.cpu_time() - before);
    let delivered: usize = came.iter().sum();
    ground.end().await;
    let per_second = |time: Duration| (delivered as f64 / time.as_secs_f64().max(0.001), "/s");
    let asked = (sizes.subscribers * sizes.fragments) as f64;
    vec![
        Figure::number(
            "fragments brought to clients, per gateway core",
            per_second(cpu),
            delivered,
            Target::AtLeast(100_000.0),
        ),
        Figure::number(
            "fragments brought to clients, with all on this machine",
            per_second(took),
            delivered,
            Target::None,
        ),
        Figure::number("of those said", (100.0 * delivered as f64 / asked, "%"), delivered, Target::None),
    ]
}

async fn say(ground: &Ground, session: &str, mut next: Delta, fragments: usize) {
    let publisher = ground.stack.bus().await.publisher();
    let tenant = ground.stack.api.tenant_id.parse().expect("an id");
    let session = session.parse().expect("an id");
    let mut tick = tokio::time::interval(APART);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..fragments {
        tick.tick().await;
        publisher.publish(tenant, &session, &News::Delta(next.clone()));
        next.offset += next.text.len() as u64;
    }
}
