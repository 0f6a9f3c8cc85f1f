//! Records tests and checks that are skipped because the machine lacks something. `./dev test` counts them as skipped, not
//! as passed.
#![allow(clippy::print_stderr, reason = "a person who runs one test sees why it is skipped")]

use std::{env, fs::OpenOptions, io::Write as _};

/// Environment variable with the file in which `./dev test` collects the notes.
const NOTES: &str = "FLOTILLA_TEST_LEFT_OUT";

/// Records that the current test is skipped, and why.
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    note("skipped", &format!("{test}: {why}"));
}

/// Records that a test omits a check, and why.
pub fn leave_unchecked(why: &str) {
    note("unchecked", why);
}

fn note(kind: &str, text: &str) {
    eprintln!("{kind}: {text}");
    if let Some(notes) = env::var_os(NOTES) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(notes).expect("the file of the notes");
        // One write for each line, because tests of many processes share the file.
        file.write_all(format!("{kind} {text}\n").as_bytes()).expect("a written note");
    }
}
