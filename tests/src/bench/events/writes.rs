//! The size of an answer in the write-ahead log of Postgres, including everything that is stored with it.

use super::sizes::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        model::{Model, Plan},
        testbed::{Servers, Testbed},
    },
    turn::Watch,
};
use std::time::Duration;

/// Time between two chunks of the model: short, so that other writes, such as leases, do not count.
const APART: Duration = Duration::from_millis(1);
/// Size of a turn before the measured turns. It writes the pages that they need since the last checkpoint.
const WARM_CHUNKS: usize = 10;

/// Measures a long answer, and one that is a hundred times shorter.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    let session = testbed.stack.session().await;
    turn(&testbed, &model, &session, WARM_CHUNKS).await;
    let mut figures = vec![];
    for chunks in [sizes.chunks * 4, (sizes.chunks / 25).max(1)] {
        let before = written(&testbed).await;
        let text = turn(&testbed, &model, &session, chunks).await;
        let bytes = written(&testbed).await - before;
        let name = format!("log of an answer of {:.1} kB / its text", text as f64 / 1_000.0);
        let is_long = figures.is_empty();
        let target = if is_long { Target::AtMost(2.5) } else { Target::None };
        figures.push(Figure::number(
            name,
            Quantity { value: bytes as f64 / text as f64, unit: "x" },
            text,
            target,
        ));
    }
    testbed.end().await;
    figures
}

/// Runs a turn and returns the size of its answer; bytes.
async fn turn(testbed: &Testbed, model: &Model, session: &str, chunks: usize) -> usize {
    model.plan(Plan::Words { chunks, apart: APART });
    let cursor = format!("v1.{}", testbed.stack.api.get(session).await.event_seq);
    let mut watch = Watch::from(&testbed.stack.api, session, &cursor).await;
    testbed.stack.api.prompt(session, "bench").await.expect("an accepted prompt");
    let mut text = 0;
    loop {
        let Some(event) = watch.next().await else { continue };
        let part = &event.properties["part"];
        if part["type"] == "text" && part["time"]["end"].is_number() {
            text = part["text"].as_str().expect("a text").len();
        }
        if event.kind == "session.idle" {
            return text;
        }
    }
}

/// Returns the size of the log since the server was created; bytes.
async fn written(testbed: &Testbed) -> i64 {
    let query = "select (pg_current_wal_insert_lsn() - '0/0')::bigint";
    sqlx::query_scalar(query).fetch_one(&mut testbed.postgres().await).await.expect("a position")
}
