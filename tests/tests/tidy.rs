//! The rules of ARCHITECTURE.md and STYLE.md that a machine can check, applied to the text of the whole workspace.
//! A rule that finds nothing to check fails, because it would no longer prove anything.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "tidy/bounds.rs"]
mod bounds;
#[path = "tidy/codes.rs"]
mod codes;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/floors.rs"]
mod floors;
#[path = "tidy/manifests.rs"]
mod manifests;
#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/shapes.rs"]
mod shapes;
#[path = "tidy/sources.rs"]
mod sources;
#[path = "tidy/store.rs"]
mod store;
#[path = "tidy/tasks.rs"]
mod tasks;
#[path = "tidy/words.rs"]
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names of directories with built, downloaded or measured files.
const IGNORED: [&str; 4] = ["target", ".git", ".flotilla", "node_modules"];

/// A text file of the workspace.
struct File {
    /// Its path from the root, separated by `/`.
    path: String,
    text: String,
}

impl File {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap()
    }

    fn is_in(&self, dir: &str) -> bool {
        self.path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
    }

    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|actual| actual == extension)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Reads every text file of the workspace.
fn files() -> Vec<File> {
    let (root, mut files) = (root(), vec![]);
    let mut dirs = vec![root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            // In a second work tree, `.git` is a file.
            if IGNORED.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                dirs.push(path);
                continue;
            }
            // A file that is not UTF-8 is an image or another binary file.
            if let Ok(text) = fs::read_to_string(&path) {
                files.push(File {
                    path: path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(),
                    text,
                });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Ends a rule that checked this number of items and found these violations.
fn conclude(checked: usize, complaints: &[String]) {
    assert!(checked > 0, "the rule found nothing to check");
    assert!(complaints.is_empty(), "{} of {checked}:\n{}", complaints.len(), complaints.join("\n"));
}

/// Finds `word` in `text` without a letter, digit or `_` on either side.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        !text[..*at].chars().next_back().is_some_and(is_part)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

#[test]
fn only_whole_words_are_found() {
    for (text, want) in
        [("a to b", Some(2)), ("toto to", Some(5)), ("to_do", None), ("to", Some(0)), ("(to)", Some(1))]
    {
        assert_eq!(find_word(text, "to"), want, "{text:?}");
    }
}
