//! What the text of an answer in plain words costs in the write-ahead log of Postgres, with everything that is stored beside it.

use super::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Target},
        ground::{Ground, Servers},
        model::{Model, Plan},
    },
    turn::Watch,
};
use std::time::Duration;

/// Between two chunks of the model: the rest of what is stored meanwhile, such as leases, is no cost of the text.
const APART: Duration = Duration::from_millis(1);
/// A turn before the measured ones, so that the pages that it needs were written since the last checkpoint.
const WARM_CHUNKS: usize = 10;

/// Measures a long answer, and one of a hundredth of it.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    let session = ground.stack.session().await;
    turn(&ground, &model, &session, WARM_CHUNKS).await;
    let mut figures = vec![];
    for chunks in [sizes.chunks * 4, (sizes.chunks / 25).max(1)] {
        let before = written(&ground).await;
        let text = turn(&ground, &model, &session, chunks).await;
        let bytes = written(&ground).await - before;
        let name = format!("log of an answer of {:.1} kB / its text", text as f64 / 1_000.0);
        let is_long = figures.is_empty();
        let target = if is_long { Target::AtMost(2.5) } else { Target::None };
        figures.push(Figure::number(name, (bytes as f64 / text as f64, "x"), text, target));
    }
    ground.end().await;
    figures
}

/// Gives the bytes of the answer.
async fn turn(ground: &Ground, model: &Model, session: &str, chunks: usize) -> usize {
    model.plan(Plan::Words { chunks, apart: APART });
    let cursor = format!("v1.{}", ground.stack.api.get(session).await.event_seq);
    let mut watch = Watch::from(&ground.stack.api, session, &cursor).await;
    ground.stack.api.prompt(session, "bench").await.expect("an accepted prompt");
    let mut text = 0;
    loop {
        let Some(seen) = watch.next().await else { continue };
        let part = &seen.properties["part"];
        if part["type"] == "text" && part["time"]["end"].is_number() {
            text = part["text"].as_str().expect("a text").len();
        }
        if seen.kind == "session.idle" {
            return text;
        }
    }
}

/// Bytes of the log since the server began.
async fn written(ground: &Ground) -> i64 {
    let query = "select (pg_current_wal_insert_lsn() - '0/0')::bigint";
    sqlx::query_scalar(query).fetch_one(&mut ground.postgres().await).await.expect("a position")
}
