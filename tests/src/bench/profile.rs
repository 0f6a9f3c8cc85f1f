//! What the services ask of Postgres for a short session and for a step of a tool. The counts do not depend on the machine, so a change that
//! adds a transaction to the path of every session shows in its own test run.

mod shapes;
pub mod sizes;

use self::{shapes::Shape, sizes::Sizes};
use super::{
    figure::{Figure, Quantity, Target},
    model::Model,
    testbed::{
        Servers, Testbed,
        relay::{Relay, Traffic},
    },
};
use crate::Options;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was counted when the figures were last committed.
const COMMITTED: &str = include_str!("profile/committed.json");
/// How much more than the committed count is no regression: work in the background falls into some runs and not into others.
const MORE_MAX: f64 = 1.1;

/// What one session or one step costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Cost {
    transactions: f64,
    statements: f64,
    round_trips: f64,
    wal_kb: f64,
}

/// The profile of this code.
#[derive(Debug)]
pub struct Profile {
    /// Each count beside the committed one.
    pub figures: Vec<Figure>,
    /// The content for `committed.json`.
    pub counts: String,
    /// How often each statement runs in one of each shape, the most frequent first.
    pub statements: Vec<(&'static str, Vec<(f64, String)>)>,
}

/// Counts sessions of each shape.
///
/// # Panics
/// When the committed counts cannot be read, or a session does not end.
pub async fn measure(servers: &Servers, sizes: &Sizes) -> Profile {
    let committed: BTreeMap<String, Cost> = serde_json::from_str(COMMITTED).expect("the committed counts");
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let (testbed, relay) = Testbed::start_behind_relay(servers, options).await;
    let mut profile = Profile { figures: vec![], counts: String::new(), statements: vec![] };
    let mut counts = BTreeMap::new();
    for shape in Shape::ALL {
        let (cost, statements) = shape_cost(&testbed, &relay, &model, (shape, sizes.sessions)).await;
        profile.figures.extend(figures(shape, &cost, committed.get(shape.name()), sizes.sessions));
        counts.insert(shape.name(), cost);
        profile.statements.push((shape.name(), statements));
    }
    profile.counts = serde_json::to_string_pretty(&counts).expect("JSON");
    testbed.end().await;
    profile
}

/// Runs sessions of a shape one after the other.
async fn shape_cost(
    testbed: &Testbed,
    relay: &Relay,
    model: &Model,
    (shape, sessions): (Shape, usize),
) -> (Cost, Vec<(f64, String)>) {
    let api = &testbed.stack.api;
    // Statements are prepared and caches filled before anything is counted.
    shape.run(api, model, shape.steps()).await;
    let (long, long_wal) = count(testbed, relay, || async {
        for _ in 0..sessions {
            shape.run(api, model, shape.steps()).await;
        }
    })
    .await;
    // A step costs what a session with more steps costs more.
    let (short, short_wal, parts) = if shape.steps() > 1 {
        let (short, wal) = count(testbed, relay, || async {
            for _ in 0..sessions {
                shape.run(api, model, 1).await;
            }
        })
        .await;
        (short, wal, sessions * (shape.steps() - 1))
    } else {
        (Traffic::default(), 0.0, sessions)
    };
    let each = |long: u64, short: u64| (long as f64 - short as f64) / parts as f64;
    let cost = Cost {
        transactions: each(long.transactions, short.transactions),
        statements: each(long.statements, short.statements),
        round_trips: each(long.round_trips, short.round_trips),
        wal_kb: (long_wal - short_wal) / parts as f64 / 1024.0,
    };
    let mut statements: Vec<(f64, String)> = long
        .by_text
        .iter()
        .map(|(text, count)| (each(*count, short.by_text.get(text).copied().unwrap_or(0)), text.clone()))
        .filter(|(count, _)| *count >= 0.05)
        .collect();
    statements.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    (cost, statements)
}

/// Counts what `work` asks of Postgres, and the bytes that it adds to the write-ahead log.
async fn count<F: Future<Output = ()>>(
    testbed: &Testbed,
    relay: &Relay,
    work: impl FnOnce() -> F,
) -> (Traffic, f64) {
    let mut connection = testbed.postgres().await;
    let before: String = sqlx::query_scalar("select pg_current_wal_insert_lsn()::text")
        .fetch_one(&mut connection)
        .await
        .expect("the place in the log");
    relay.take();
    work().await;
    let traffic = relay.take();
    let bytes: f64 = sqlx::query_scalar("select (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::float8")
        .bind(before)
        .fetch_one(&mut connection)
        .await
        .expect("the place in the log");
    (traffic, bytes)
}

fn figures(shape: Shape, cost: &Cost, committed: Option<&Cost>, sessions: usize) -> Vec<Figure> {
    let figure = |what: &str, unit: &'static str, of: fn(&Cost) -> f64| {
        let target = committed.map_or(Target::None, |committed| Target::AtMost(of(committed) * MORE_MAX));
        let name = format!("{}: {what}", shape.name());
        Figure::number(name, Quantity { value: of(cost), unit }, sessions, target)
    };
    vec![
        figure("transactions", "", |cost| cost.transactions),
        figure("statements", "", |cost| cost.statements),
        figure("round trips", "", |cost| cost.round_trips),
        // The size of the log depends on checkpoints, which fall into some runs and not into others.
        Figure::number(
            format!("{}: write-ahead log", shape.name()),
            Quantity { value: cost.wal_kb, unit: "kB" },
            sessions,
            Target::None,
        ),
    ]
}
