//! Three quarters of a minute of faults: enough to see that the proof itself works, and most mistakes that it is there to find.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::process::Command;

/// A process of its own, as people run it: its services die with it, whatever happens here.
#[test]
fn no_promise_is_broken_by_faults() {
    let mut harness = Command::new(env!("CARGO_BIN_EXE_flotilla-faults"));
    let output = harness.args(["--minutes", "0.75", "--seed", "7"]).output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(said.contains("violations: none"), "{said}");
}
