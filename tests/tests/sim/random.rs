//! Random walks of the sound protocol. A failing walk prints its seed and its actions; `walk(seed)` repeats it.

use e2e::sim::{
    action::Action,
    rules::Rules,
    walk::{find_failure, walk},
};
use std::collections::BTreeMap;

/// Walks of one part. FLOTILLA_SIM_SEEDS sets another number for a long run.
const SEEDS: u64 = 10_000;

/// Walks one of four parts, so that four cores can share the work.
fn check(part: u64) {
    let seeds = std::env::var("FLOTILLA_SIM_SEEDS").map_or(SEEDS, |text| text.parse().expect("a number"));
    if let Some(failure) = find_failure(part * seeds..(part + 1) * seeds, Rules::SOUND) {
        panic!("{failure}");
    }
}

#[test]
fn walks_of_the_first_part_hold_every_property() {
    check(0);
}

#[test]
fn walks_of_the_second_part_hold_every_property() {
    check(1);
}

#[test]
fn walks_of_the_third_part_hold_every_property() {
    check(2);
}

#[test]
fn walks_of_the_fourth_part_hold_every_property() {
    check(3);
}

#[test]
fn every_action_and_fault_occurs_in_the_walks() {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..2_000 {
        for action in walk(seed, Rules::SOUND).0 {
            let text = match action {
                Action::Fault(fault) => format!("{fault:?}"),
                action => format!("{action:?}"),
            };
            let name = text.split('(').next().unwrap().to_owned();
            *counts.entry(name).or_default() += 1;
        }
    }
    let names: Vec<&str> = counts.keys().map(String::as_str).collect();
    let all = [
        "BackOff",
        "Claim",
        "ClaimAnswerLost",
        "ClaimDirectly",
        "Client",
        "ClientAnswerLost",
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
        "Yield",
    ];
    assert_eq!(names, all, "{counts:#?}");
    assert!(counts.values().all(|count| *count >= 10), "{counts:#?}");
}

#[test]
fn a_seed_determines_its_walk() {
    assert_eq!(walk(7, Rules::SOUND), walk(7, Rules::SOUND));
    assert_ne!(walk(7, Rules::SOUND), walk(8, Rules::SOUND));
}
