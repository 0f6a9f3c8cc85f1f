//! Each rule broken in turn. A scenario that holds with all rules must then violate the property that the rule protects.

use e2e::sim::{
    explore::{Exploration, explore},
    observer::Property,
    postgres::Attempts,
    rules::{BrokenRule, Rules},
    scenario::{ClientAction, Faults, Scenario},
    walk,
};

/// No rule is broken, but workers do not sweep: without faults, hints must be enough.
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

/// Checks that the scenario violates the property only with the rule broken.
fn check(scenario: &Scenario, broken: BrokenRule, property: Property) {
    let sound = explore(scenario, 1_000_000);
    assert_eq!(sound.violation, None, "without a broken rule");
    let rules = Rules { broken: Some(broken), ..scenario.rules };
    let Exploration { violation, .. } = explore(&Scenario { rules, ..scenario.clone() }, 1_000_000);
    let (found, trace) = violation.unwrap_or_else(|| panic!("{broken:?} causes no violation"));
    assert_eq!(found, property, "{trace:#?}");
}

#[test]
fn without_a_fence_a_stale_write_is_stored() {
    check(&alone(Faults { pauses: 2, ..faults() }), BrokenRule::NoFence, Property::NoStaleWrite);
}

#[test]
fn a_fence_by_reading_lets_a_stale_write_in() {
    check(&alone(Faults { pauses: 2, ..faults() }), BrokenRule::FenceByReading, Property::NoStaleWrite);
}

#[test]
fn without_write_numbers_a_write_is_stored_twice() {
    check(&alone(Faults { lost_commits: 1, ..faults() }), BrokenRule::NoWriteNumbers, Property::WrittenOnce);
}

#[test]
fn an_epoch_from_redis_is_given_twice() {
    let faults = Faults { flushes: 1, pauses: 1, ..faults() };
    check(&alone(faults), BrokenRule::EpochFromRedis, Property::EpochGivenOnce);
}

#[test]
fn blind_parking_loses_an_input() {
    let scenario = Scenario { rules: HINTS_ONLY, ..Scenario::simple(1, 2, 2, faults()) };
    check(&scenario, BrokenRule::BlindPark, Property::Settles);
}

#[test]
fn without_a_durable_marker_a_lost_hint_loses_the_input() {
    check(&alone(Faults { lost_hints: 1, ..faults() }), BrokenRule::NoMarker, Property::Settles);
}

#[test]
fn without_dirty_marks_and_sweeps_an_input_is_lost() {
    let scenario = Scenario { rules: HINTS_ONLY, ..Scenario::simple(1, 2, 2, faults()) };
    check(&scenario, BrokenRule::NoDirtyMark, Property::Settles);
}

#[test]
fn a_bare_release_without_sweeps_loses_an_input() {
    let scenario = Scenario { rules: HINTS_ONLY, ..Scenario::simple(1, 2, 2, faults()) };
    check(&scenario, BrokenRule::BareRelease, Property::Settles);
}

#[test]
fn without_sweeps_an_emptied_queue_is_not_refilled() {
    let scenario = Scenario { rules: HINTS_ONLY, ..alone(Faults { flushes: 1, ..faults() }) };
    let (found, _) = explore(&scenario, 1_000_000).violation.unwrap();
    assert_eq!(found, Property::Settles);
}

#[test]
fn without_sweeps_a_crash_loses_a_session() {
    let scenario = Scenario { rules: HINTS_ONLY, ..alone(Faults { crashes: 1, ..faults() }) };
    // Not even the reaper helps: the lease may expire in Redis earlier than in Postgres.
    let (found, _) = explore(&scenario, 1_000_000).violation.unwrap();
    assert_eq!(found, Property::Settles);
    let rules = Rules { reaps: false, ..Rules::SOUND };
    assert_eq!(
        explore(&Scenario { rules, ..scenario }, 1_000_000).violation,
        None,
        "with sweeps, the reaper only saves time"
    );
}

#[test]
fn stray_holds_in_the_queue_must_be_released() {
    let lost = alone(Faults { lost_calls: 1, ..faults() });
    check(&lost, BrokenRule::QueueStraysStay, Property::Settles);
    // The same without a lost call: a session may be released between the read and its adoption.
    let flushed = Scenario::simple(1, 2, 2, Faults { flushes: 1, ..faults() });
    check(&flushed, BrokenRule::QueueStraysStay, Property::Settles);
}

#[test]
fn strays_in_postgres_must_be_given_back() {
    check(&alone(Faults { lost_commits: 1, ..faults() }), BrokenRule::StraysStay, Property::Settles);
}

#[test]
fn an_unfenced_sandbox_accepts_a_stale_effect() {
    check(&alone(Faults { pauses: 2, ..faults() }), BrokenRule::SandboxUnfenced, Property::NoStaleEffect);
}

#[test]
fn execs_without_ids_start_twice() {
    check(&alone(Faults { crashes: 1, ..faults() }), BrokenRule::ExecsRepeat, Property::StartedOnce);
}

#[test]
fn waiting_parents_with_slots_block_their_children() {
    check(&pair(faults()), BrokenRule::WaitingKeepsSlot, Property::Settles);
}

#[test]
fn an_answer_after_the_last_write_can_be_lost() {
    check(&pair(Faults { crashes: 1, ..faults() }), BrokenRule::AnswerAfterPark, Property::Settles);
}

#[test]
fn answers_without_a_key_are_delivered_twice() {
    let scenario =
        Scenario { client_actions: vec![ClientAction::Prompt(0), ClientAction::Prompt(1)], ..pair(faults()) };
    check(&scenario, BrokenRule::AnswersRepeat, Property::AnswerDeliveredOnce);
}

#[test]
fn inputs_taken_before_they_are_recorded_are_lost() {
    let children = vec![vec![1, 2], vec![], vec![]];
    let scenario = Scenario { slots: 2, ..Scenario::tree(children, faults()) };
    check(&scenario, BrokenRule::AckUnnoted, Property::Settles);
}

#[test]
fn an_abort_must_reach_the_children() {
    let scenario =
        Scenario { client_actions: vec![ClientAction::Prompt(0), ClientAction::Abort(0)], ..pair(faults()) };
    check(&scenario, BrokenRule::AbortStaysUp, Property::AbortReachesChildren);
}

#[test]
fn without_resets_of_attempts_a_healthy_session_is_quarantined() {
    let attempts = Attempts { suspect: 2, most: 3 };
    let scenario = Scenario { attempts, ..Scenario::simple(1, 2, 1, Faults { crashes: 2, ..faults() }) };
    check(&scenario, BrokenRule::AttemptsStay, Property::OnlyPoisonQuarantined);
}

#[test]
fn several_suspects_on_one_worker_quarantine_a_healthy_session() {
    let attempts = Attempts { suspect: 1, most: 2 };
    let scenario = Scenario { poison: Some(0), attempts, slots: 2, ..Scenario::simple(2, 1, 1, faults()) };
    check(&scenario, BrokenRule::SuspectsTogether, Property::OnlyPoisonQuarantined);
}

/// The random walks find the broken rules without a specific scenario. They cannot find those that only cost time while
/// workers sweep (no dirty mark, a bare release).
#[test]
fn random_walks_find_broken_rules() {
    for broken in [
        BrokenRule::NoFence,
        BrokenRule::FenceByReading,
        BrokenRule::NoWriteNumbers,
        BrokenRule::EpochFromRedis,
        BrokenRule::BlindPark,
        BrokenRule::NoMarker,
        BrokenRule::QueueStraysStay,
        BrokenRule::StraysStay,
        BrokenRule::ExecsRepeat,
        BrokenRule::WaitingKeepsSlot,
        BrokenRule::AnswerAfterPark,
        BrokenRule::AnswersRepeat,
        BrokenRule::AckUnnoted,
        BrokenRule::AbortStaysUp,
        BrokenRule::SuspectsTogether,
    ] {
        let rules = Rules { broken: Some(broken), ..Rules::SOUND };
        assert!(walk::find_failure(0..40_000, rules).is_some(), "{broken:?} causes no violation");
    }
}
