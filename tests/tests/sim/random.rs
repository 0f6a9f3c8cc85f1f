//! Random walks of the sound protocol. A failing one prints its seed and everything that happened; `walk(seed)` does the
//! same again.

use e2e::sim::{
    action::Action,
    rules::Rules,
    walk::{find_failure, walk},
};
use std::collections::BTreeMap;

const SEEDS: u64 = 30_000;

/// Four parts, for as many cores.
fn check(part: u64) {
    if let Some(failure) = find_failure(part * SEEDS..(part + 1) * SEEDS, Rules::SOUND) {
        panic!("{failure}");
    }
}

#[test]
fn first_part() {
    check(0);
}

#[test]
fn second_part() {
    check(1);
}

#[test]
fn third_part() {
    check(2);
}

#[test]
fn fourth_part() {
    check(3);
}

#[test]
fn everything_happens_that_can() {
    let mut happened: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..2_000 {
        for action in walk(seed, Rules::SOUND).0 {
            let text = match action {
                Action::Fault(fault) => format!("{fault:?}"),
                action => format!("{action:?}"),
            };
            let name = text.split('(').next().unwrap().to_owned();
            *happened.entry(name).or_default() += 1;
        }
    }
    let names: Vec<&str> = happened.keys().map(String::as_str).collect();
    let all = [
        "BackOff",
        "Claim",
        "ClaimAnswerLost",
        "ClaimDirectly",
        "CommitAnswerLost",
        "Crash",
        "Drain",
        "Flush",
        "GiveBack",
        "GiveUp",
        "Hint",
        "HintLost",
        "HintRepeated",
        "LapseInPostgres",
        "LapseInRedis",
        "PauseInPostgres",
        "PauseInRedis",
        "ReadForRefill",
        "Reap",
        "Refill",
        "RefillLost",
        "ReleaseLost",
        "Renew",
        "Start",
        "Step",
        "Stop",
        "Sweep",
        "TakeAnswerLost",
        "Tidy",
        "Wake",
        "Wish",
        "WishAnswerLost",
        "Yield",
    ];
    assert_eq!(names, all, "{happened:#?}");
    assert!(happened.values().all(|count| *count >= 10), "{happened:#?}");
}

#[test]
fn a_seed_gives_the_same_walk_again() {
    assert_eq!(walk(7, Rules::SOUND), walk(7, Rules::SOUND));
    assert_ne!(walk(7, Rules::SOUND), walk(8, Rules::SOUND));
}
