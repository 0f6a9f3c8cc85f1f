//! What the services ask of Postgres for a short session and for a step of a tool. The counts do not depend on the machine, so a change that
//! adds a transaction to the path of every session shows in its own test run. It also measures the CPU time of each process for short sessions.

pub mod cpu;
mod shapes;
pub mod sizes;

use self::{shapes::Shape, sizes::Sizes};
use super::{
    figure::{Figure, Quantity, Target},
    model::Model,
    sources,
    testbed::{Servers, Testbed, Traffic},
};
use crate::Options;
use rpc::v1;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// What was counted when the figures were last committed.
const COMMITTED: &str = include_str!("profile/committed.json");
/// How much more than the committed count is no regression: what a loop writes together depends a little on how fast the machine is.
const MORE_MAX: f64 = 1.05;
/// Time before the first chunk of an answer. A snapshot of the files takes less, and real models take longer.
const THINKING: Duration = Duration::from_millis(50);

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
    /// Each count with the committed one.
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
    model.think_for(THINKING);
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start_behind_relay(servers, options).await;
    let source = sources::upload(&testbed.stack.api, &sources::repository_of(sizes.files)).await;
    let counter = Counter { testbed: &testbed, model: &model, sessions: sizes.sessions, source };
    let mut profile = Profile { figures: vec![], counts: String::new(), statements: vec![] };
    let mut counts = BTreeMap::new();
    for shape in Shape::ALL {
        let (cost, statements) = counter.cost(shape).await;
        profile.figures.extend(figures(shape, &cost, committed.get(shape.name()), sizes.sessions));
        counts.insert(shape.name(), cost);
        profile.statements.push((shape.name(), statements));
    }
    profile.counts = serde_json::to_string_pretty(&counts).expect("JSON");
    testbed.end().await;
    profile
}

/// Runs sessions one after the other, and counts.
struct Counter<'a> {
    testbed: &'a Testbed,
    model: &'a Model,
    sessions: usize,
    source: v1::Source,
}

/// What one session asked of Postgres: the least of several, because work in the background adds to some of them.
#[derive(Default)]
struct Count {
    traffic: Traffic,
    /// What they added to the write-ahead log.
    wal_bytes: f64,
}

impl Count {
    /// Takes the smaller of each number. The statements are those of the session with the fewest.
    fn reduce(&mut self, other: Self) {
        let (mine, theirs) = (&mut self.traffic, other.traffic);
        if theirs.statements < mine.statements {
            mine.by_text = theirs.by_text;
        }
        mine.transactions = mine.transactions.min(theirs.transactions);
        mine.statements = mine.statements.min(theirs.statements);
        mine.round_trips = mine.round_trips.min(theirs.round_trips);
        self.wal_bytes = self.wal_bytes.min(other.wal_bytes);
    }
}

impl Counter<'_> {
    /// The cost of a session of this shape, or of one of its steps: what a session with more steps costs more.
    async fn cost(&self, shape: Shape) -> (Cost, Vec<(f64, String)>) {
        // Statements are prepared and caches filled before anything is counted.
        shape.run(&self.testbed.stack.api, self.model, shape.steps(), &self.source).await;
        let long = self.count(shape, shape.steps()).await;
        let (short, parts) = match shape.steps() {
            1 => (Count::default(), 1),
            steps => (self.count(shape, 1).await, steps - 1),
        };
        let each =
            |of: fn(&Traffic) -> u64| (of(&long.traffic) as f64 - of(&short.traffic) as f64) / parts as f64;
        let cost = Cost {
            transactions: each(|traffic| traffic.transactions),
            statements: each(|traffic| traffic.statements),
            round_trips: each(|traffic| traffic.round_trips),
            wal_kb: (long.wal_bytes - short.wal_bytes) / parts as f64 / 1024.0,
        };
        let times = |count: &Count, text: &str| count.traffic.by_text.get(text).copied().unwrap_or(0) as f64;
        let texts = long.traffic.by_text.keys();
        let each_text =
            texts.map(|text| ((times(&long, text) - times(&short, text)) / parts as f64, text.clone()));
        let mut statements: Vec<_> = each_text.filter(|(count, _)| *count > 0.0).collect();
        statements.sort_by(|(left, _), (right, _)| right.total_cmp(left));
        (cost, statements)
    }

    async fn count(&self, shape: Shape, steps: usize) -> Count {
        let mut least = self.count_one(shape, steps).await;
        for _ in 1..self.sessions {
            least.reduce(self.count_one(shape, steps).await);
        }
        least
    }

    async fn count_one(&self, shape: Shape, steps: usize) -> Count {
        let mut connection = self.testbed.postgres().await;
        let before: String = sqlx::query_scalar("select pg_current_wal_insert_lsn()::text")
            .fetch_one(&mut connection)
            .await
            .expect("the place in the log");
        self.testbed.take_traffic();
        shape.run(&self.testbed.stack.api, self.model, steps, &self.source).await;
        let traffic = self.testbed.take_traffic();
        let wal_bytes = sqlx::query_scalar("select (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::float8")
            .bind(before)
            .fetch_one(&mut connection)
            .await
            .expect("the place in the log");
        Count { traffic, wal_bytes }
    }
}

fn figures(shape: Shape, cost: &Cost, committed: Option<&Cost>, sessions: usize) -> Vec<Figure> {
    let figure = |what: &str, unit: &'static str, of: fn(&Cost) -> f64| {
        let target = committed.map_or(Target::None, |committed| Target::AtMost(of(committed) * MORE_MAX));
        let name = format!("{}: {what}", shape.name());
        Figure::number(name, Quantity { value: of(cost), unit }, sessions, target)
    };
    let without_target = |what: &str, unit: &'static str, value: f64| {
        Figure::number(format!("{}: {what}", shape.name()), Quantity { value, unit }, sessions, Target::None)
    };
    vec![
        figure("transactions", "", |cost| cost.transactions),
        figure("statements", "", |cost| cost.statements),
        // A new connection prepares each statement once more, and a checkpoint makes the log larger. Both fall into some runs and not into others.
        without_target("round trips", "", cost.round_trips),
        without_target("write-ahead log", "kB", cost.wal_kb),
    ]
}
