//! Each rule broken in turn: the same scenario that holds with all rules must then fail, by the property that the rule is
//! there for.

use e2e::sim::{
    explore::{Found, explore},
    observer::Property,
    postgres::Attempts,
    rules::{Broken, Rules},
    scenario::{Faults, Scenario, Wish},
    walk,
};

/// No rule broken, but nobody looks for what no hint announced: while no fault happens, hints must be enough.
const HINTS_ONLY: Rules = Rules { sweeps: false, ..Rules::SOUND };

fn faults() -> Faults {
    Faults::default()
}

fn alone(faults: Faults) -> Scenario {
    Scenario::simple(1, 1, 2, faults)
}

fn pair(faults: Faults) -> Scenario {
    Scenario::tree(Scenario::chain(2), faults)
}

/// Gives the shortest way on which the scenario fails with the rule broken.
fn check(scenario: &Scenario, broken: Broken, property: Property) {
    let sound = explore(scenario, 1_000_000);
    assert_eq!(sound.violation, None, "all rules kept");
    let rules = Rules { broken: Some(broken), ..scenario.rules };
    let Found { violation, .. } = explore(&Scenario { rules, ..scenario.clone() }, 1_000_000);
    let (found, trace) = violation.unwrap_or_else(|| panic!("{broken:?} is not noticed"));
    assert_eq!(found, property, "{trace:#?}");
}

#[test]
fn no_fence() {
    check(&alone(Faults { pauses: 2, ..faults() }), Broken::NoFence, Property::NoStaleWrite);
}

#[test]
fn a_fence_by_reading() {
    check(&alone(Faults { pauses: 2, ..faults() }), Broken::FenceByReading, Property::NoStaleWrite);
}

#[test]
fn no_write_numbers() {
    check(&alone(Faults { lost_commits: 1, ..faults() }), Broken::NoWriteNumbers, Property::WrittenOnce);
}

#[test]
fn an_epoch_from_redis() {
    let faults = Faults { flushes: 1, pauses: 1, ..faults() };
    check(&alone(faults), Broken::EpochFromRedis, Property::EpochGivenOnce);
}

#[test]
fn blind_parking() {
    let scenario = Scenario { rules: HINTS_ONLY, ..Scenario::simple(1, 2, 2, faults()) };
    check(&scenario, Broken::BlindPark, Property::ComesToRest);
}

#[test]
fn no_durable_marker() {
    check(&alone(Faults { lost_hints: 1, ..faults() }), Broken::NoMarker, Property::ComesToRest);
}

#[test]
fn no_dirty_mark_and_no_sweep() {
    let scenario = Scenario { rules: HINTS_ONLY, ..Scenario::simple(1, 2, 2, faults()) };
    check(&scenario, Broken::NoDirtyMark, Property::ComesToRest);
}

#[test]
fn a_bare_release_and_no_sweep() {
    let scenario = Scenario { rules: HINTS_ONLY, ..Scenario::simple(1, 2, 2, faults()) };
    check(&scenario, Broken::BareRelease, Property::ComesToRest);
}

#[test]
fn no_sweep_and_an_emptied_queue() {
    let scenario = Scenario { rules: HINTS_ONLY, ..alone(Faults { flushes: 1, ..faults() }) };
    let (found, _) = explore(&scenario, 1_000_000).violation.unwrap();
    assert_eq!(found, Property::ComesToRest);
}

#[test]
fn no_sweep_and_a_crash() {
    let scenario = Scenario { rules: HINTS_ONLY, ..alone(Faults { crashes: 1, ..faults() }) };
    // Not even the reaper helps: the lease may be over in Redis while it still runs in Postgres.
    let (found, _) = explore(&scenario, 1_000_000).violation.unwrap();
    assert_eq!(found, Property::ComesToRest);
    let rules = Rules { reaps: false, ..Rules::SOUND };
    assert_eq!(explore(&Scenario { rules, ..scenario }, 1_000_000).violation, None, "it only saves time");
}

#[test]
fn stray_holds_in_the_queue() {
    let lost = alone(Faults { lost_calls: 1, ..faults() });
    check(&lost, Broken::QueueStraysStay, Property::ComesToRest);
    // Also without a lost call: what is adopted may have been let go since it was read.
    let flushed = Scenario::simple(1, 2, 2, Faults { flushes: 1, ..faults() });
    check(&flushed, Broken::QueueStraysStay, Property::ComesToRest);
}

#[test]
fn strays_in_postgres() {
    check(&alone(Faults { lost_commits: 1, ..faults() }), Broken::StraysStay, Property::ComesToRest);
}

#[test]
fn an_unfenced_sandbox() {
    check(&alone(Faults { pauses: 2, ..faults() }), Broken::SandboxUnfenced, Property::NoStaleEffect);
}

#[test]
fn execs_that_start_again() {
    check(&alone(Faults { crashes: 1, ..faults() }), Broken::ExecsRepeat, Property::StartedOnce);
}

#[test]
fn a_cap_that_counts_waiting_parents() {
    check(&pair(faults()), Broken::WaitingKeepsSlot, Property::ComesToRest);
}

#[test]
fn an_answer_after_the_last_write() {
    check(&pair(Faults { crashes: 1, ..faults() }), Broken::AnswerAfterPark, Property::ComesToRest);
}

#[test]
fn answers_without_a_key() {
    let scenario = Scenario { wishes: vec![Wish::Prompt(0), Wish::Prompt(1)], ..pair(faults()) };
    check(&scenario, Broken::AnswersRepeat, Property::AnswerDeliveredOnce);
}

#[test]
fn inputs_taken_before_they_are_noted() {
    let children = vec![vec![1, 2], vec![], vec![]];
    let scenario = Scenario { slots: 2, ..Scenario::tree(children, faults()) };
    check(&scenario, Broken::AckUnnoted, Property::ComesToRest);
}

#[test]
fn an_abort_that_does_not_go_down() {
    let scenario = Scenario { wishes: vec![Wish::Prompt(0), Wish::Abort(0)], ..pair(faults()) };
    check(&scenario, Broken::AbortStaysUp, Property::AbortReachesChildren);
}

#[test]
fn attempts_that_are_never_forgiven() {
    let attempts = Attempts { suspect: 2, most: 3 };
    let scenario = Scenario { attempts, ..Scenario::simple(1, 2, 1, Faults { crashes: 2, ..faults() }) };
    check(&scenario, Broken::AttemptsStay, Property::OnlyPoisonQuarantined);
}

#[test]
fn suspects_on_one_worker() {
    let attempts = Attempts { suspect: 1, most: 2 };
    let scenario = Scenario { poison: Some(0), attempts, slots: 2, ..Scenario::simple(2, 1, 1, faults()) };
    check(&scenario, Broken::SuspectsTogether, Property::OnlyPoisonQuarantined);
}

/// The random walks find what they are there for, without knowing where to look. What only costs time when sweeps go on
/// (no dirty mark, a bare release) they cannot find.
#[test]
fn random_walks_notice_broken_rules_too() {
    for broken in [
        Broken::NoFence,
        Broken::FenceByReading,
        Broken::NoWriteNumbers,
        Broken::EpochFromRedis,
        Broken::BlindPark,
        Broken::NoMarker,
        Broken::QueueStraysStay,
        Broken::StraysStay,
        Broken::ExecsRepeat,
        Broken::WaitingKeepsSlot,
        Broken::AnswerAfterPark,
        Broken::AnswersRepeat,
        Broken::AckUnnoted,
        Broken::AbortStaysUp,
        Broken::SuspectsTogether,
    ] {
        let rules = Rules { broken: Some(broken), ..Rules::SOUND };
        assert!(walk::find_failure(0..40_000, rules).is_some(), "{broken:?} is not noticed");
    }
}
