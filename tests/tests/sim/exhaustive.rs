//! Every state that the sound protocol can reach within small bounds holds every property.

use e2e::sim::{
    explore::explore,
    postgres::Attempts,
    scenario::{ClientAction, Faults, Scenario},
};

const NONE: Faults = Faults {
    crashes: 0,
    pauses: 0,
    flushes: 0,
    lost_commits: 0,
    lost_calls: 0,
    lost_hints: 0,
    repeated_hints: 0,
    drains: 0,
    yields: 0,
    direct_claims: 0,
};

/// Checks that every state of the scenario holds every property, and that there are at least `states` of them: a model
/// that lost its transitions would hold everywhere.
fn check(scenario: &Scenario, states: usize) {
    let exploration = explore(scenario, 1_000_000);
    assert_eq!(exploration.violation, None, "{scenario:?}");
    assert!(exploration.states >= states, "only {} states", exploration.states);
}

#[test]
fn a_crash_and_a_frozen_worker_that_goes_on() {
    check(&Scenario::simple(1, 1, 2, Faults { crashes: 1, pauses: 2, ..NONE }), 150_000);
}

#[test]
fn two_prompts_and_a_frozen_worker_that_goes_on() {
    check(&Scenario::simple(1, 2, 2, Faults { pauses: 2, ..NONE }), 100_000);
}

#[test]
fn an_emptied_queue_and_a_frozen_worker() {
    check(&Scenario::simple(1, 2, 2, Faults { flushes: 1, pauses: 1, ..NONE }), 200_000);
}

#[test]
fn commits_in_doubt_and_a_crash() {
    check(&Scenario::simple(1, 1, 2, Faults { lost_commits: 2, crashes: 1, ..NONE }), 50_000);
}

#[test]
fn lost_calls_and_hints_and_repeated_hints() {
    let faults = Faults { lost_calls: 2, lost_hints: 1, repeated_hints: 1, ..NONE };
    check(&Scenario::simple(1, 2, 2, faults), 10_000);
}

#[test]
fn a_drain_a_yield_and_a_claim_without_redis() {
    let faults = Faults { drains: 1, yields: 1, direct_claims: 1, ..NONE };
    check(&Scenario::simple(1, 1, 2, faults), 30_000);
}

#[test]
fn an_abort_between_two_prompts() {
    let client_actions = vec![ClientAction::Prompt(0), ClientAction::Abort(0), ClientAction::Prompt(0)];
    check(&Scenario { client_actions, ..Scenario::simple(1, 1, 2, Faults { crashes: 1, ..NONE }) }, 90_000);
}

#[test]
fn a_child_with_a_crash_and_a_commit_in_doubt() {
    check(&Scenario::tree(Scenario::chain(2), Faults { crashes: 1, lost_commits: 1, ..NONE }), 50_000);
}

#[test]
fn a_child_and_an_emptied_queue() {
    check(&Scenario::tree(Scenario::chain(2), Faults { flushes: 1, ..NONE }), 2_000);
}

#[test]
fn an_aborted_tree() {
    let client_actions = vec![ClientAction::Prompt(0), ClientAction::Abort(0)];
    let faults = Faults { crashes: 1, ..NONE };
    check(
        &Scenario { client_actions: client_actions.clone(), ..Scenario::tree(Scenario::chain(2), faults) },
        50_000,
    );
    check(&Scenario { client_actions, workers: 2, ..Scenario::tree(Scenario::chain(2), NONE) }, 20_000);
}

#[test]
fn five_generations_in_one_slot() {
    check(&Scenario::tree(Scenario::chain(5), NONE), 70_000);
}

#[test]
fn two_children_in_one_slot_and_under_a_cap_of_one() {
    check(&Scenario::tree(vec![vec![1, 2], vec![], vec![]], NONE), 7_000);
    let wide = Scenario { workers: 2, cap: 1, ..Scenario::tree(vec![vec![1, 2], vec![], vec![]], NONE) };
    check(&wide, 7_000);
}

#[test]
fn a_poison_session_and_an_innocent_one() {
    let attempts = Attempts { suspect: 1, most: 2 };
    let apart = Scenario { poison: Some(0), attempts, ..Scenario::simple(2, 1, 1, NONE) };
    check(&apart, 3_000);
    check(&Scenario { slots: 2, ..apart }, 30_000);
    check(&Scenario { poison: Some(1), attempts, ..Scenario::tree(Scenario::chain(2), NONE) }, 1_000);
}
