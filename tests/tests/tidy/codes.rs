//! The codes of errors: `error.proto` spells them, and Rust names their values.

use crate::{conclude, files};
use rpc::v1::ErrorCode;

/// Crates that do not know `wire`. Its tests, and those who use them, hold their spellings together.
const BELOW: [&str; 4] = ["crates/convert-client", "crates/domain", "crates/store", "crates/unpack"];
/// Programs of the far end, which have codes of their own.
const FOREIGN: [&str; 2] = ["crates/llm", "crates/model-script"];
/// Spellings with a further meaning: the outcome of a turn, and a line of the self-test.
const OTHERS: [&str; 2] = ["needs_human", "process_limit"];

#[test]
fn no_source_spells_a_code() {
    let (mut checked, mut complaints) = (0, vec![]);
    for file in files().iter().filter(|file| is_source(&file.path)) {
        let code = file.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (at, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            checked += 1;
            let mut literals = line.split('"').skip(1).step_by(2).filter(|text| !OTHERS.contains(text));
            if let Some(text) = literals.find(|text| ErrorCode::parse(text).is_some()) {
                complaints.push(format!("{}:{} spells the code {text}", file.path, at + 1));
            }
        }
    }
    conclude(checked, &complaints);
}

fn is_source(path: &str) -> bool {
    let is_other = |dir: &&str| path.starts_with(&format!("{dir}/"));
    let is_test = path.starts_with("tests/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.contains("/fake");
    path.ends_with(".rs") && path.contains("/src/") && !is_test && !BELOW.iter().chain(&FOREIGN).any(is_other)
}
