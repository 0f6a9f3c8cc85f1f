//! A run of 45 seconds of faults: enough to check the harness, and to find most mistakes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::process::Command;

/// Runs the harness as a separate process, so that its services die with it in any case.
#[test]
fn no_promise_is_broken_by_faults() {
    let mut harness = Command::new(env!("CARGO_BIN_EXE_flotilla-faults"));
    let output = harness.args(["--minutes", "0.75", "--seed", "7"]).output().unwrap();
    let (report, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{report}\n{errors}");
    assert!(report.contains("violations: none"), "{report}");
}
