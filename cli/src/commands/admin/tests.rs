//! The operator's commands against a fake gateway, and their tables.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::{
    arguments::{Cli, Command as Top},
    tests::fake::Fake,
};
use clap::Parser as _;
use rpc::v1::SessionClass;

const NOW_MS: i64 = 1_000_000_000;
const ID: &str = "ses_1ffcce3d00015Oy45kUL559D5O";

async fn admin(fake: &Fake, line: &str) -> Result<Exit> {
    let words = ["flotilla", "admin"].into_iter().chain(line.split(' '));
    let Top::Admin(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!("admin") };
    run(&fake.serve().await, &Output::kept(false), arguments).await
}

#[tokio::test]
async fn orders_reach_the_gateway() {
    for (line, want) in [
        ("queue", "queue ,queue a"),
        ("workers", "workers"),
        ("sessions --state quarantined", "sessions Quarantined"),
        ("sessions", "sessions Quarantined,sessions Waiting,sessions Queued,sessions Running"),
        ("usage", "usage of ,usage of "),
        ("usage b", "usage of id-of-b,usage of id-of-b"),
        ("drain worker-1", "drain worker-1"),
        ("drain worker-1 --undo", "undo drain worker-1"),
        ("release ses_1", "release ses_1 of "),
        ("release ses_1 --tenant b", "release ses_1 of id-of-b"),
        ("kill ses_1 --reason loops", "kill ses_1 of : loops"),
        ("kill ses_1 --tenant id-of-a", "kill ses_1 of id-of-a: "),
    ] {
        let fake = Fake::default();
        assert_eq!(admin(&fake, line).await.unwrap(), Exit::Done, "{line}");
        assert_eq!(fake.0.lock().unwrap().orders.join(","), want, "{line}");
    }
    let error = admin(&Fake::default(), "kill ses_1 --tenant elsewhere").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no tenant elsewhere; `flotilla tenant ls` lists them");
}

/// Compares a table, which must fit into 80 columns.
fn check(text: &str, expected: &str) {
    assert_eq!(text, expected);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn the_queue_fits_a_terminal() {
    let mut line = QueueLine {
        tenant_name: "a-tenant-with-a-long-name".to_owned(),
        queued: 12_345,
        oldest_ms: 125_000,
        running: 20,
        waiting: 3,
        running_max: 20,
        weight: 1_000,
        ..QueueLine::default()
    };
    line.set_class(SessionClass::Interactive);
    let mut idle =
        QueueLine { tenant_name: "b".to_owned(), quarantined: 1, weight: 1, ..QueueLine::default() };
    idle.set_class(SessionClass::Batch);
    check(
        &queue_table(&[line, idle], Paint::Plain),
        "TENANT            CLASS        QUEUED  OLDEST  RUNNING  WAITING  STOPPED  SHARE
a-tenant-with-a…  interactive   12345   2 min    20/20        3        0   1000
b                 batch             0       -      0/0        0        1      1
",
    );
}

#[test]
fn workers_show_whether_they_live() {
    let worker = |name: &str, lease_ms, draining| Worker {
        name: name.to_owned(),
        version: "0.1.0".to_owned(),
        started_at_ms: NOW_MS - 7_200_000,
        lease_ms,
        draining,
        slots: 64,
        running: 3,
        ..Worker::default()
    };
    let workers =
        [worker("worker-1", 5_900, false), worker("worker-2", 4_000, true), worker("worker-3", -1, true)];
    check(
        &workers_table(&workers, NOW_MS, Paint::Plain),
        "WORKER    STATE     RUNNING  LEASE  STARTED  VERSION
worker-1  alive        3/64    5 s  2 h ago  0.1.0
worker-2  draining     3/64    4 s  2 h ago  0.1.0
worker-3  dead         3/64      -  2 h ago  0.1.0
",
    );
    assert_eq!(worker_json(&workers[2])["state"], "dead");
}

#[test]
fn sessions_show_their_worker_or_their_reason() {
    let control = |state, attempts, [owner, reason, detail]: [&str; 3]| {
        let mut control = Control {
            session_id: ID.to_owned(),
            attempts,
            owner: owner.to_owned(),
            waiting_reason: reason.to_owned(),
            waiting_detail: detail.to_owned(),
            owned_at_ms: NOW_MS - 61_000,
            queued_at_ms: NOW_MS - 3_000,
            waiting_at_ms: NOW_MS - 7_000,
            ..Control::default()
        };
        control.set_state(state);
        control
    };
    let sessions = [
        control(SessionState::Quarantined, 5, ["", "", "its loop ended 5 times without progress"]),
        control(SessionState::Waiting, 0, ["", "newer_worker", "an unknown part"]),
        control(SessionState::Queued, 0, ["", "", ""]),
        control(SessionState::Running, 1, ["worker-1", "", ""]),
    ];
    check(
        &sessions_table(&sessions, NOW_MS, Paint::Plain),
        &format!(
            "SESSION                         STATE        SINCE  TRIES  WORKER OR REASON
{ID}  quarantined    7 s      5  its loop ended 5 tim…
{ID}  waiting        7 s      0  newer_worker: an unk…
{ID}  queued         3 s      0
{ID}  running      1 min      1  worker-1
"
        ),
    );
}
