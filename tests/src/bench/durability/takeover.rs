//! How soon another worker goes on: after a kill, when the lease of the dead one must run out, and after a SIGTERM, when
//! it hands over. The workers are processes; everything else of the stack runs here.

use super::Sizes;
use crate::{
    Options,
    bench::{
        Samples,
        figure::{Figure, Target},
        ground::{Ground, Servers},
        process::Process,
    },
    turn::{Watch, bash},
};
use domain::limits;
use std::time::{Duration, Instant};

/// A text that streams for half a minute: longer than a round.
fn stream() -> String {
    format!("@delay 100\n@chunk 4\n@text {}", "word ".repeat(240))
}

/// A command that runs as long.
fn command() -> String {
    bash("echo on; sleep 30")
}

/// From the kill of a worker to the next event of each of its sessions.
pub(super) async fn crash(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let ground = Ground::start(servers, Options { workers: 0, ..Options::default() }).await;
    ground.until_sql("Postgres counts as long up", LONG_UP).await;
    let mut victim = Process::worker(&ground.stack, 1);
    let (mut streamed, mut ran) = (Samples::default(), Samples::default());
    for round in 0..sizes.rounds {
        ground.until_sql("a worker lives", ONE_LIVES).await;
        let mut turns =
            begin(&ground, sizes.sessions, |number| if number % 2 == 0 { stream() } else { command() }).await;
        let successor = Process::worker(&ground.stack, round + 2);
        ground.until_sql("both workers live for a while", TWO_LIVE_FOR_A_WHILE).await;
        // Waits for nothing: it spreads the kills over the time between two heartbeats.
        let spread = limits::HEARTBEAT_MS * round as u64 / sizes.rounds as u64;
        tokio::time::sleep(Duration::from_millis(spread)).await;
        let begun = Instant::now();
        std::mem::replace(&mut victim, successor).kill();
        for (number, sample) in gone_on(&mut turns, begun).await.into_iter().enumerate() {
            if number % 2 == 0 { streamed.push(sample) } else { ran.push(sample) }
        }
        end(&ground, turns).await;
    }
    drop(victim);
    ground.end().await;
    let target = Target::AtMost(8_000.0);
    vec![
        Figure::times("kill -9 of a worker to the next event, session that streams", streamed, target),
        Figure::times("kill -9 of a worker to the next event, session with a command", ran, target),
    ]
}

/// From SIGTERM to a worker to the first event of each of its sessions from another one, while its command runs on.
pub(super) async fn drain(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let ground = Ground::start(servers, Options { workers: 0, ..Options::default() }).await;
    let (mut victim, mut samples) = (Process::worker(&ground.stack, 1), Samples::default());
    for round in 0..sizes.rounds {
        ground.until_sql("a worker lives", ONE_LIVES).await;
        let mut turns = begin(&ground, sizes.sessions, |_| command()).await;
        let successor = Process::worker(&ground.stack, round + 2);
        ground.until_sql("both workers live for a while", TWO_LIVE_FOR_A_WHILE).await;
        let begun = Instant::now();
        victim.terminate();
        samples.extend(gone_on(&mut turns, begun).await.into_iter().collect());
        ground.until_sql("the drained worker is gone", ONE_LIVES).await;
        victim = successor;
        end(&ground, turns).await;
    }
    drop(victim);
    ground.end().await;
    vec![Figure::times(
        "SIGTERM to a worker to the next event, session with a command",
        samples,
        Target::AtMost(1_000.0),
    )]
}

const ONE_LIVES: &str = "select count(*) = 1 from worker where lease_until > now()";
/// Two renewals of one's own come before one takes another worker's sessions.
const TWO_LIVE_FOR_A_WHILE: &str =
    "select count(*) = 2 from worker where lease_until > now() and started_at < now() - interval '5 s'";
/// Right after Postgres has started, nobody takes another worker's sessions.
const LONG_UP: &str = "select now() - pg_postmaster_start_time() > interval '11 s'";

/// Prompts fresh sessions and waits until all of them stream or run their command.
async fn begin(ground: &Ground, count: usize, prompt: impl Fn(usize) -> String) -> Vec<(String, Watch)> {
    let turns = (0..count).map(async |number| {
        let (api, prompt) = (&ground.stack.api, prompt(number));
        let session = api.session(None).await;
        let mut watch = Watch::start(api, &session).await;
        api.prompt(&session, &prompt).await.expect("an accepted prompt");
        if prompt.contains("@text") {
            watch.until_text().await;
        } else {
            watch.until(|seen| seen.properties["part"]["state"]["metadata"]["output"] == "on\n").await;
        }
        (session, watch)
    });
    futures::future::join_all(turns).await
}

/// Waits for the first event of each session that another worker wrote, and gives how long after `begun` it came.
async fn gone_on(turns: &mut [(String, Watch)], begun: Instant) -> Vec<Duration> {
    let next = turns.iter_mut().map(async |(_, watch)| {
        watch.until(|seen| seen.epoch > 1).await;
        begun.elapsed()
    });
    futures::future::join_all(next).await
}

async fn end(ground: &Ground, turns: Vec<(String, Watch)>) {
    let ends = turns.into_iter().map(async |(session, mut watch)| {
        ground.stack.api.abort(&session).await.expect("an abort");
        watch.until_idle().await;
    });
    futures::future::join_all(ends).await;
}
