//! A run of 12 seconds of faults: enough to check the harness. `./dev faults` runs as long as it is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

/// Faults of a run on a busy machine.
const FAULTS_MIN: u32 = 5;

/// Runs the harness as a separate process, so that its services die with it in any case.
#[test]
fn no_promise_is_broken_by_faults() {
    let mut harness = Command::new(env!("CARGO_BIN_EXE_flotilla-faults"));
    let output = harness.args(["--minutes", "0.2", "--seed", "7"]).output().unwrap();
    let (report, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{report}\n{errors}");
    assert!(report.contains("violations: none"), "{report}");
    // "seed 7: 41 faults, …": a harness that injects nothing proves nothing.
    let faults = report.split(" faults,").next().and_then(|head| head.rsplit(' ').next()).unwrap();
    assert!(faults.parse::<u32>().unwrap() >= FAULTS_MIN, "{report}");
}
