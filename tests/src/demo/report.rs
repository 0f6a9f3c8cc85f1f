//! What a person reads meanwhile.
#![allow(clippy::print_stdout, reason = "its output is the report")]

/// Reports one thing that is as it should be.
pub(super) fn ok(what: &str) {
    note(&format!("ok: {what}"));
}

/// Tells something about the run.
pub(super) fn note(what: &str) {
    println!("demo: {what}");
}
