//! Words that mark unfinished work, or name a path of a particular machine.

use crate::{conclude, files, find_word};

/// Lists the forbidden words, and whether their case is ignored. They are assembled here, so that this file does not contain
/// them.
fn unfinished() -> Vec<(String, bool)> {
    vec![
        (["FIX", "ME"].concat(), false),
        (["X", "XX"].concat(), false),
        (["for", " now"].concat(), true),
        (["/work", "/main"].concat(), false),
        (["/work", "/shared"].concat(), false),
        (["/root", "/."].concat(), false),
    ]
}

/// Macros that mark unfinished Rust code.
fn macros() -> Vec<String> {
    ["to_do", "unimple_mented", "d_bg"].map(|name| name.replace('_', "") + "!").to_vec()
}

#[test]
fn no_file_contains_forbidden_words() {
    let (files, mut complaints) = (files(), vec![]);
    for file in &files {
        let small = file.text.to_lowercase();
        for (needle, in_any_case) in unfinished() {
            let text = if in_any_case { &small } else { &file.text };
            if let Some(at) = find(text, &needle) {
                complaints.push(format!("{}:{} contains {needle:?}", file.path, line_at(text, at)));
            }
        }
        for needle in macros().iter().filter(|_| file.has_extension("rs")) {
            if let Some(at) = file.text.find(needle.as_str()) {
                complaints.push(format!("{}:{} contains {needle}", file.path, line_at(&file.text, at)));
            }
        }
    }
    conclude(files.len(), &complaints);
}

/// Finds a whole word, or the start of a path anywhere.
fn find(text: &str, needle: &str) -> Option<usize> {
    if needle.starts_with('/') { text.find(needle) } else { find_word(text, needle) }
}

fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[test]
fn every_forbidden_word_is_found() {
    for (needle, _) in unfinished() {
        assert_eq!(find(&format!("a\nb {needle} c"), &needle), Some(4), "{needle}");
    }
    assert_eq!(macros()[0].len(), 5);
    assert_eq!(line_at("a\nb c", 4), 2);
}
