//! What a test leaves out on a machine that lacks something. `./dev test` counts it as skipped, never as passed.

use std::{env, fs::OpenOptions, io::Write as _};

/// Names the file in which `./dev test` collects the notes.
const NOTES: &str = "FLOTILLA_TEST_LEFT_OUT";

/// Notes that the current test does nothing here, and why.
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    note("skipped", &format!("{test}: {why}"));
}

/// Notes that a check is left out in tests that do run, and why.
pub fn leave_unchecked(why: &str) {
    note("unchecked", why);
}

fn note(kind: &str, text: &str) {
    eprintln!("{kind}: {text}");
    if let Some(notes) = env::var_os(NOTES) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(notes).expect("the file of the notes");
        // One write for each line: tests of many processes share the file.
        file.write_all(format!("{kind} {text}\n").as_bytes()).expect("room for a note");
    }
}
