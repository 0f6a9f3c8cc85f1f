//! Writes of a loop that stay on their page: an update that changes no indexed column and finds room on its page (HOT)
//! leaves no work for the indexes.
//!
//! A change of the phase or of the wake-up time changes an indexed column and is never HOT. A turn makes three of them
//! (accepted, taken, parked). A trigger counts these, so that they can be subtracted from the statistics of Postgres.

use super::sizes::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        testbed::{Servers, Testbed},
    },
    turn::run,
};
use sqlx::Row as _;

/// Number of steps of a turn.
const STEPS: usize = 20;
/// Number of concurrent turns, each in a separate session.
const AT_ONCE: usize = 8;

const COUNT_MOVES: &str = "
create table bench_update (is_move boolean not null);
create function bench_note() returns trigger language plpgsql security definer set search_path = public as $$
begin
  insert into bench_update values (old.phase <> new.phase or old.wake_at is distinct from new.wake_at);
  return null;
end $$;
create trigger bench_note after update on session_run for each row execute function bench_note();";
/// Backends report their counts up to ten seconds late.
const COUNTS_ARE_COMPLETE: &str =
    "select n_tup_upd >= (select count(*) from bench_update) from pg_stat_user_tables
  where relname = 'session_run'";
const COUNTS: &str =
    "select n_tup_upd, n_tup_hot_upd, (select count(*) from bench_update where is_move) as moves
  from pg_stat_user_tables where relname = 'session_run'";

/// Runs turns of many steps and reads Postgres' statistics.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let testbed = Testbed::start(servers, Options::default()).await;
    let mut postgres = testbed.postgres().await;
    // Before the first session, so that the trigger sees every update.
    sqlx::raw_sql(COUNT_MOVES).execute(&mut postgres).await.expect("a trigger");
    let prompt = prompt();
    let mut turns = 0;
    while turns < sizes.turns {
        let together = AT_ONCE.min(sizes.turns - turns);
        let ended = (0..together).map(async |_| {
            let session = testbed.stack.session().await;
            run(&testbed.stack.api, &session, &prompt).await.0
        });
        for outcome in futures::future::join_all(ended).await {
            assert_eq!(outcome, "done");
        }
        turns += together;
    }
    testbed.until_sql("the counts are complete", COUNTS_ARE_COMPLETE).await;
    let row = sqlx::query(COUNTS).fetch_one(&mut postgres).await.expect("statistics");
    let number = |column| usize::try_from(row.get::<i64, _>(column)).expect("a count");
    let (all, hot, moves) = (number("n_tup_upd"), number("n_tup_hot_upd"), number("moves"));
    testbed.end().await;
    let share = 100.0 * hot as f64 / (all - moves) as f64;
    vec![
        Figure::number(
            "updates of the control row for each turn",
            Quantity { value: all as f64 / turns as f64, unit: "updates" },
            turns,
            Target::None,
        ),
        Figure::number(
            "of these, changes of phase: never on their page",
            Quantity { value: moves as f64 / turns as f64, unit: "updates" },
            turns,
            Target::None,
        ),
        Figure::number(
            "writes of a loop that stayed on their page",
            Quantity { value: share, unit: "%" },
            all - moves,
            Target::AtLeast(100.0),
        ),
    ]
}

fn prompt() -> String {
    let mut prompt = String::new();
    for step in 1..STEPS {
        let todos = serde_json::json!({"todos": [{"content": format!("step {step}"), "status": "pending", "priority": "low"}]});
        prompt.push_str(&format!("@tool todowrite {todos}\n"));
    }
    prompt + "@text over"
}
