//! The time until another worker continues: after a kill, when the lease of the dead worker must expire, and after a
//! SIGTERM, when the worker hands over. The workers are separate processes; the rest of the stack runs in this process.

use super::sizes::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Target},
        machine::process::Process,
        samples::Samples,
        testbed::{Servers, Testbed},
    },
    turn::{Watch, bash},
};
use domain::limits;
use std::time::{Duration, Instant};

/// Returns a prompt for a text that streams for half a minute: longer than a round.
fn stream() -> String {
    format!("@delay 100\n@chunk 4\n@text {}", "word ".repeat(240))
}

/// Returns a prompt for a command that runs as long.
fn command() -> String {
    bash("echo on; sleep 30")
}

/// Measures from the kill of a worker to the next event of each of its sessions.
pub(super) async fn crash(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let testbed = Testbed::start(servers, Options { workers: 0, ..Options::default() }).await;
    testbed.until_sql("Postgres has run long enough", LONG_UP).await;
    let mut victim = Process::worker(&testbed.stack, 1);
    let (mut streamed, mut ran) = (Samples::default(), Samples::default());
    for round in 0..sizes.rounds {
        testbed.until_sql("a worker lives", ONE_LIVES).await;
        let mut turns =
            begin(&testbed, sizes.sessions, |number| if number % 2 == 0 { stream() } else { command() })
                .await;
        let successor = Process::worker(&testbed.stack, round + 2);
        testbed.until_sql("both workers live for a while", TWO_LIVE_FOR_A_WHILE).await;
        // This sleep waits for no event: it spreads the kills over the time between two heartbeats.
        let spread = limits::HEARTBEAT_MS * round as u64 / sizes.rounds as u64;
        tokio::time::sleep(Duration::from_millis(spread)).await;
        let begun = Instant::now();
        std::mem::replace(&mut victim, successor).kill();
        for (number, sample) in continuation_times(&mut turns, begun).await.into_iter().enumerate() {
            if number % 2 == 0 { streamed.push(sample) } else { ran.push(sample) }
        }
        end(&testbed, turns).await;
    }
    drop(victim);
    testbed.end().await;
    let target = Target::AtMost(8_000.0);
    vec![
        Figure::times("kill -9 of a worker to the next event, session that streams", streamed, target),
        Figure::times("kill -9 of a worker to the next event, session with a command", ran, target),
    ]
}

/// Measures from SIGTERM to a worker to the first event of each of its sessions from another worker, while its command
/// continues.
pub(super) async fn drain(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let testbed = Testbed::start(servers, Options { workers: 0, ..Options::default() }).await;
    let (mut victim, mut samples) = (Process::worker(&testbed.stack, 1), Samples::default());
    for round in 0..sizes.rounds {
        testbed.until_sql("a worker lives", ONE_LIVES).await;
        let mut turns = begin(&testbed, sizes.sessions, |_| command()).await;
        let successor = Process::worker(&testbed.stack, round + 2);
        testbed.until_sql("both workers live for a while", TWO_LIVE_FOR_A_WHILE).await;
        let begun = Instant::now();
        victim.terminate();
        samples.extend(continuation_times(&mut turns, begun).await.into_iter().collect());
        testbed.until_sql("the drained worker is gone", ONE_LIVES).await;
        victim = successor;
        end(&testbed, turns).await;
    }
    drop(victim);
    testbed.end().await;
    vec![Figure::times(
        "SIGTERM to a worker to the next event, session with a command",
        samples,
        Target::AtMost(1_000.0),
    )]
}

const ONE_LIVES: &str = "select count(*) = 1 from worker where lease_until > now()";
/// A worker takes the sessions of another only after two of its own renewals.
const TWO_LIVE_FOR_A_WHILE: &str =
    "select count(*) = 2 from worker where lease_until > now() and started_at < now() - interval '5 s'";
/// Right after the start of Postgres, workers do not take the sessions of others.
const LONG_UP: &str = "select now() - pg_postmaster_start_time() > interval '11 s'";

/// Prompts new sessions and waits until all of them stream or run their command.
async fn begin(testbed: &Testbed, count: usize, prompt: impl Fn(usize) -> String) -> Vec<(String, Watch)> {
    let turns = (0..count).map(async |number| {
        let (api, prompt) = (&testbed.stack.api, prompt(number));
        let session = api.session(None).await;
        let mut watch = Watch::start(api, &session).await;
        api.prompt(&session, &prompt).await.expect("an accepted prompt");
        if prompt.contains("@text") {
            watch.until_text().await;
        } else {
            watch.until(|event| event.properties["part"]["state"]["metadata"]["output"] == "on\n").await;
        }
        (session, watch)
    });
    futures::future::join_all(turns).await
}

/// Waits for the first event of each session from another worker, and returns its time since `begun`.
async fn continuation_times(turns: &mut [(String, Watch)], begun: Instant) -> Vec<Duration> {
    let next = turns.iter_mut().map(async |(_, watch)| {
        watch.until(|event| event.epoch > 1).await;
        begun.elapsed()
    });
    futures::future::join_all(next).await
}

async fn end(testbed: &Testbed, turns: Vec<(String, Watch)>) {
    let ends = turns.into_iter().map(async |(session, mut watch)| {
        testbed.stack.api.abort(&session).await.expect("an abort");
        watch.until_idle().await;
    });
    futures::future::join_all(ends).await;
}
