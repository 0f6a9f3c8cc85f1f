//! A week of use in fast time. Each day has its sessions, which really run; at midnight all times in Postgres move back by a day, and the
//! workers remove what is kept for no longer. What is stored must then stop growing.

use super::{
    figure::{Figure, Quantity, Target},
    testbed::{Servers, Testbed},
};
use crate::{
    Options,
    turn::{bash, run},
};
use futures::StreamExt as _;
use sqlx::AssertSqlSafe;
use std::{
    path::Path,
    time::{Duration, Instant},
};

const DAYS: usize = 7;
/// The days for which the sessions are kept.
const KEEP: &[&str] =
    &["--keep-idle-days", "2", "--upkeep-ms", "200", "--measure-ms", "1000", "--reconcile-ms", "5000"];
/// From this day on nothing may grow: as much is removed as is made.
const STEADY_DAY: usize = 4;
/// How much more the last day may store than the first steady one: the sessions of a day differ a little.
const GROWTH_MAX: f64 = 1.1;
/// Sessions at once.
const PARALLEL: usize = 16;
/// One of so many sessions runs a command, which gives it a workspace.
const WITH_COMMAND: usize = 10;
/// Longest wait at midnight.
const MIDNIGHT_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub struct Sizes {
    pub sessions: usize,
}

impl Sizes {
    /// 10,000 sessions.
    pub fn full() -> Self {
        Self { sessions: 10_000_usize.div_ceil(DAYS) }
    }

    pub fn smoke() -> Self {
        Self { sessions: 2 }
    }
}

/// A day, and what is stored at its end.
#[derive(Debug, Clone, Copy)]
struct Stored {
    /// How long the sessions of the day took.
    day_s: f64,
    /// How long the workers then took to remove what is kept for no longer.
    midnight_s: f64,
    rows: f64,
    /// The ledger is kept for more than a year, and tombstones for a week.
    kept_rows: f64,
    table_mb: f64,
    files: f64,
    file_mb: f64,
    /// Fences of deleted sessions are kept for a month.
    fences: f64,
    redis_keys: f64,
}

pub async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let testbed = Testbed::start(servers, Options { worker: KEEP, ..Options::default() }).await;
    let mut days = vec![];
    for _ in 0..DAYS {
        let began = Instant::now();
        live_a_day(&testbed, sizes.sessions).await;
        let day = began.elapsed();
        let midnight = pass_midnight(&testbed).await;
        days.push(stored(&testbed, day, midnight).await);
    }
    testbed.end().await;
    figures(&days, sizes.sessions)
}

fn figures(days: &[Stored], sessions: usize) -> Vec<Figure> {
    let figure = |name: &str, unit: &'static str, of: fn(&Stored) -> f64, target: fn(f64) -> Target| {
        let words: Vec<String> = days.iter().map(|day| format!("{:.0}", of(day))).collect();
        let quantity = Quantity { value: of(&days[DAYS - 1]), unit };
        let target = target(of(&days[STEADY_DAY - 1]));
        Figure::number(format!("{name}, by day {}", words.join(" ")), quantity, sessions * DAYS, target)
    };
    let grows = |_| Target::None;
    let is_flat = |steady| Target::AtMost(steady * GROWTH_MAX);
    vec![
        figure("sessions of a day", "s", |day| day.day_s, grows),
        figure("removal at midnight", "s", |day| day.midnight_s, grows),
        figure("ledger and tombstones", "rows", |day| day.kept_rows, grows),
        figure("fences of the sandbox", "files", |day| day.fences, grows),
        figure("other rows", "rows", |day| day.rows, is_flat),
        figure("tables and indexes", "MB", |day| day.table_mb, is_flat),
        figure("files of the sandbox", "files", |day| day.files, is_flat),
        figure("disk of the sandbox", "MB", |day| day.file_mb, is_flat),
        figure("keys in Redis", "keys", |day| day.redis_keys, is_flat),
    ]
}

async fn live_a_day(testbed: &Testbed, sessions: usize) {
    let api = &testbed.stack.api;
    let turns = futures::stream::iter(0..sessions).map(|number| async move {
        let session = api.session(None).await;
        let prompt =
            if number % WITH_COMMAND == 0 { bash("seq 1000 > numbers") } else { "@text hello".to_owned() };
        assert_eq!(run(api, &session, &prompt).await.0, "done");
    });
    turns.buffer_unordered(PARALLEL).collect::<()>().await;
}

/// Moves all times back by a day, and waits until the workers have nothing to remove. Returns how long they took.
async fn pass_midnight(testbed: &Testbed) -> Duration {
    let mut postgres = testbed.postgres().await;
    let columns: Vec<(String, String)> = sqlx::query_as(
        "select c.table_name::text, c.column_name::text from information_schema.columns c
           join information_schema.tables t on t.table_schema = c.table_schema and t.table_name = c.table_name
          where c.table_schema = 'public' and c.data_type = 'timestamp with time zone' and t.table_type = 'BASE TABLE'
            and c.table_name not in ('worker', 'chore', '_sqlx_migrations')",
    )
    .fetch_all(&mut postgres)
    .await
    .expect("the columns with times");
    assert!(columns.len() > 10, "{columns:?}");
    for (table, column) in columns {
        let sql =
            format!("update {table} set {column} = {column} - interval '1 day' where {column} is not null");
        sqlx::query(AssertSqlSafe(sql)).execute(&mut postgres).await.expect("times of the day before");
    }
    let began = Instant::now();
    loop {
        let due: i64 = sqlx::query_scalar(
            "select (select count(*) from session where updated_at < now() - interval '2 days')
                  + (select count(*) from row_removal) + (select count(*) from node_removal)",
        )
        .fetch_one(&mut postgres)
        .await
        .expect("the rest of the work");
        if due == 0 {
            return began.elapsed();
        }
        assert!(began.elapsed() < MIDNIGHT_MAX, "the workers did not remove {due} sessions in time");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Measures what is stored after a day and its midnight, which took this long.
async fn stored(testbed: &Testbed, day: Duration, midnight: Duration) -> Stored {
    let mut postgres = testbed.postgres().await;
    // What the autovacuum of a real day does.
    sqlx::raw_sql("vacuum analyze").execute(&mut postgres).await.expect("a vacuum");
    let (rows, kept_rows, bytes): (i64, i64, i64) = sqlx::query_as(
        "select coalesce(sum(n_live_tup) filter (where relname not in ('ledger', 'session_tombstone')), 0)::bigint,
                coalesce(sum(n_live_tup) filter (where relname in ('ledger', 'session_tombstone')), 0)::bigint,
                sum(pg_total_relation_size(relid))::bigint
           from pg_stat_user_tables",
    )
    .fetch_one(&mut postgres)
    .await
    .expect("the sizes of the tables");
    let data = testbed.stack.sandbox_data();
    let (all_files, file_bytes) = disk(data);
    let (fences, _) = disk(&data.join("fence"));
    let files = all_files - fences;
    Stored {
        day_s: day.as_secs_f64(),
        midnight_s: midnight.as_secs_f64(),
        rows: rows as f64,
        kept_rows: kept_rows as f64,
        table_mb: bytes as f64 / 1e6,
        files: files as f64,
        file_mb: file_bytes as f64 / 1e6,
        fences: fences as f64,
        redis_keys: testbed.stack.redis_keys().await as f64,
    }
}

/// The number of files and directories below a directory, and their bytes.
fn disk(directory: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(stat) = entry.metadata() else { continue };
        files += 1;
        bytes += stat.len();
        if stat.is_dir() {
            let below = disk(&entry.path());
            (files, bytes) = (files + below.0, bytes + below.1);
        }
    }
    (files, bytes)
}
