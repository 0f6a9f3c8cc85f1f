use super::*;
use proptest::prelude::*;

const SETUP: Scripts = Scripts { setup: true, install: false };
const INSTALL: Scripts = Scripts { setup: false, install: true };
const BOTH: Scripts = Scripts { setup: true, install: true };
const NONE: Scripts = Scripts { setup: false, install: false };

/// Runs an opening whose steps succeed, except that the files are refused for these reasons, one after the other.
fn steps(has_source: bool, scripts: Scripts, refusals: &[Failure]) -> Vec<Step> {
    let mut opening = Opening::of(has_source);
    let mut refusals = refusals.iter();
    let mut steps = vec![];
    loop {
        let step = opening.step();
        steps.push(step);
        let outcome = match step {
            Step::Find => Outcome::Found(FoundFiles::Missing),
            Step::Clone => Outcome::Cloned,
            Step::Prepare => Outcome::Prepared(scripts),
            Step::OpenFiles(_) => refusals.next().map_or(Outcome::Done, |why| Outcome::Failed(*why)),
            Step::SetUp
            | Step::Install
            | Step::CloseDoor
            | Step::LeaveInstallOut
            | Step::SealDoor
            | Step::Record => Outcome::Done,
            Step::End | Step::Fail => return steps,
        };
        opening.apply(outcome);
    }
}

#[test]
fn an_opening_does_what_its_workspace_needs() {
    use Step::*;
    let (sure, maybe) = (OpenFiles(Assurance::Confirmed), OpenFiles(Assurance::IfPossible));
    for (what, got, want) in [
        ("no source", steps(false, NONE, &[]), vec![Find, Prepare, maybe, Record, End]),
        ("a source", steps(true, NONE, &[]), vec![Find, Clone, Prepare, maybe, Record, End]),
        (
            "a setup",
            steps(true, SETUP, &[]),
            vec![Find, Clone, Prepare, SetUp, CloseDoor, sure, SealDoor, Record, End],
        ),
        (
            "an install that the machine has",
            steps(true, INSTALL, &[]),
            vec![Find, Clone, Prepare, sure, SealDoor, Record, End],
        ),
        (
            "an install",
            steps(true, INSTALL, &[Failure::InstallMissing]),
            vec![Find, Clone, Prepare, sure, Install, CloseDoor, sure, SealDoor, Record, End],
        ),
        (
            "a setup below an install",
            steps(true, BOTH, &[Failure::InstallMissing]),
            vec![
                Find, Clone, Prepare, SetUp, CloseDoor, sure, Install, CloseDoor, SetUp, CloseDoor, sure,
                SealDoor, Record, End,
            ],
        ),
        (
            "a copy whose packages are gone",
            steps(true, NONE, &[Failure::InstallMissing]),
            vec![Find, Clone, Prepare, maybe, LeaveInstallOut, maybe, Record, End],
        ),
        (
            "a branch that moved",
            steps(true, NONE, &[Failure::SourceChanged]),
            vec![Find, Clone, Prepare, maybe, Clone, Prepare, maybe, Record, End],
        ),
        (
            "an environment that made room",
            steps(true, SETUP, &[Failure::EnvironmentMissing]),
            vec![Find, Clone, Prepare, SetUp, CloseDoor, sure, SetUp, CloseDoor, sure, SealDoor, Record, End],
        ),
        ("a refusal", steps(true, NONE, &[Failure::Other]), vec![Find, Clone, Prepare, maybe, Fail]),
    ] {
        assert_eq!(got, want, "{what}");
    }
}

#[test]
fn what_vanishes_again_and_again_fails_the_opening() {
    for (why, scripts) in [
        (Failure::SourceChanged, NONE),
        (Failure::EnvironmentMissing, SETUP),
        (Failure::InstallMissing, INSTALL),
        (Failure::InstallMissing, NONE),
    ] {
        let often = [why; OPENING_REPETITIONS_MAX as usize];
        assert_eq!(steps(true, scripts, &often).last(), Some(&Step::End), "{why:?}");
        let too_often = [why; OPENING_REPETITIONS_MAX as usize + 1];
        assert_eq!(steps(true, scripts, &too_often).last(), Some(&Step::Fail), "{why:?}");
    }
}

#[test]
fn files_that_exist_are_not_opened_again() {
    for (found, want) in [
        (FoundFiles::Recorded, Step::End),
        (FoundFiles::Unrecorded, Step::Record),
        (FoundFiles::Missing, Step::Clone),
        (FoundFiles::Lost, Step::Fail),
    ] {
        let mut opening = Opening::of(true);
        opening.apply(Outcome::Found(found));
        assert_eq!(opening.step(), want, "{found:?}");
    }
}

#[test]
fn files_that_another_loop_opened_run_no_script_of_this_one() {
    let mut opening = Opening::of(true);
    opening.apply(Outcome::Found(FoundFiles::Missing));
    opening.apply(Outcome::OpenElsewhere);
    assert_eq!(opening.step(), Step::OpenFiles(Assurance::IfPossible));
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let found = [FoundFiles::Recorded, FoundFiles::Unrecorded, FoundFiles::Missing, FoundFiles::Lost];
    let failures =
        [Failure::SourceChanged, Failure::EnvironmentMissing, Failure::InstallMissing, Failure::Other];
    let scripts = (any::<bool>(), any::<bool>());
    let scripts = scripts.prop_map(|(setup, install)| Scripts { setup, install });
    prop_oneof![
        3 => Just(Outcome::Done),
        2 => Just(Outcome::Cloned),
        1 => Just(Outcome::OpenElsewhere),
        2 => scripts.prop_map(Outcome::Prepared),
        2 => prop::sample::select(found.to_vec()).prop_map(Outcome::Found),
        1 => prop::sample::select(failures.to_vec()).prop_map(Outcome::Failed),
    ]
}

proptest! {
    /// Whatever happens, in whatever order: no files are opened, and no opening ends, while the door leads to what a script needs.
    #[test]
    fn no_program_of_a_session_runs_with_the_door_of_a_script(
        has_source in any::<bool>(),
        outcomes in prop::collection::vec(any_outcome(), 0..60),
    ) {
        let mut opening = Opening::of(has_source);
        let mut door = Door::Closed;
        let mut has_run_script = false;
        for outcome in outcomes {
            let step = opening.step();
            if step.door() != Door::Unchanged {
                door = step.door();
            }
            let is_wide = matches!(door, Door::Setup | Door::Install);
            match step {
                Step::SetUp | Step::Install => {
                    prop_assert!(is_wide);
                    has_run_script = true;
                }
                Step::OpenFiles(assurance) => {
                    prop_assert!(!is_wide);
                    prop_assert!(!has_run_script || assurance == Assurance::Confirmed, "nobody asked the broker");
                }
                Step::End | Step::Fail => prop_assert!(!is_wide, "{step:?} leaves the door open"),
                Step::Find | Step::Clone | Step::Prepare | Step::CloseDoor | Step::LeaveInstallOut
                | Step::SealDoor | Step::Record => prop_assert!(step == Step::CloseDoor || !is_wide, "{step:?}"),
            }
            has_run_script &= (step, outcome) != (Step::CloseDoor, Outcome::Done);
            opening.apply(outcome);
        }
    }

    /// An opening ends: each repetition has a bound.
    #[test]
    fn an_opening_ends(scripts in (any::<bool>(), any::<bool>()), refusals in prop::collection::vec(
        prop::sample::select(vec![Failure::SourceChanged, Failure::EnvironmentMissing, Failure::InstallMissing]), 0..40)) {
        let scripts = Scripts { setup: scripts.0, install: scripts.1 };
        let steps = steps(true, scripts, &refusals);
        let repeats_max = 3 * OPENING_REPETITIONS_MAX as usize;
        prop_assert!(steps.len() <= 10 + 6 * repeats_max, "{steps:?}");
    }
}
