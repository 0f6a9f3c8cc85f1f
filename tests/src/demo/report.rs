//! What a person reads meanwhile.
#![allow(clippy::print_stdout, reason = "its output is the report")]

/// Reports one thing that is as it should be.
pub(super) fn ok(what: &str) {
    note(&format!("ok: {what}"));
}

/// Reports what this machine cannot show.
pub(super) fn left_out(what: &str, why: &str) {
    note(&format!("left out: {what}: {why}"));
}

/// Tells something about the run.
pub(super) fn note(what: &str) {
    println!("demo: {what}");
}
